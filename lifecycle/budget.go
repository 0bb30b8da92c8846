package lifecycle

import "time"

// What a budget is made of when nothing else is said.
const (
	// DefaultSettle is the quiet time after the withdrawal.
	DefaultSettle = 5 * time.Second
	// DefaultWithdrawTimeout is the longest that a withdrawal is waited for.
	DefaultWithdrawTimeout = 30 * time.Second
	// DefaultGrace is the grace period that Kubernetes gives a pod unasked.
	DefaultGrace = 30 * time.Second
	// DefaultFallbackSleep is how long a hook waits at the least when nobody can
	// tell it about sessions.
	DefaultFallbackSleep = 15 * time.Second

	maxReserve   = 10 * time.Second
	reserveShare = 5
	// shortestGrace is the longest grace period that leaves no time to wait in.
	shortestGrace = 2 * time.Second
)

// Reserve is the part of a grace period that is kept for the application after
// SIGTERM: a fifth of it, ten seconds at the most.
func Reserve(grace time.Duration) time.Duration {
	return max(0, min(maxReserve, grace/reserveShare))
}

// Budget is how long after its first hook has started a pod with this grace
// period may be waited for: all but the reserve, and no more than limit, where
// limit is not zero. A grace period of two seconds or less leaves nothing.
func Budget(grace, limit time.Duration) time.Duration {
	return budgetOf(grace, Reserve(grace), limit)
}

func budgetOf(grace, reserve, limit time.Duration) time.Duration {
	if grace <= shortestGrace {
		return 0
	}
	budget := grace - reserve
	if limit > 0 {
		budget = min(budget, limit)
	}
	return budget
}

// WithdrawTimeout is how much of a budget may be spent on the withdrawal.
func WithdrawTimeout(budget time.Duration) time.Duration {
	return min(DefaultWithdrawTimeout, budget/3)
}
