// Command bench measures conndrain beside what people use today, in one run, on
// tables of up to a million entries, and prints one table: what has to be
// reached, and what was. It exits with 1 if something was missed.
//
// Everything happens in network namespaces of its own. Only a table of a
// million entries needs more of the machine: nf_conntrack_max is raised for that
// time, and --quick leaves it out.
package main
