// Package looks looks at the connections of this network namespace again and again,
// at a bounded cost, and says at each look what each of them is doing.
package looks
