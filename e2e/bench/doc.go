// Command bench measures the product on a real cluster that it starts itself, beside what people use today, and prints
// a table: what has to be reached, and what was.
//
// Progress goes to stderr. All times of one figure are of one clock: the cluster's machines share this machine's.
// Nothing stays when it ends, or is interrupted; what a killed run left, the next one removes.
package main
