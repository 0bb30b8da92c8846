package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBudget(t *testing.T) {
	type figures struct{ Reserve, Budget, Withdraw float64 }
	for _, tc := range []struct {
		name         string
		grace, limit float64
		want         figures
	}{
		{"the default of Kubernetes", 30, 0, figures{6, 24, 8}},
		{"long", 900, 0, figures{10, 890, 30}},
		{"fifty seconds", 50, 0, figures{10, 40, 40. / 3}},
		{"short", 10, 0, figures{2, 8, 8. / 3}},
		{"three seconds", 3, 0, figures{0.6, 2.4, 0.8}},
		{"too short to wait", 2, 0, figures{0.4, 0, 0}},
		{"none", 0, 0, figures{0, 0, 0}},
		{"negative", -5, 0, figures{0, 0, 0}},
		{"capped", 900, 60, figures{10, 60, 20}},
		{"a cap that is not reached", 30, 60, figures{6, 24, 8}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			grace := seconds(tc.grace)
			budget := Budget(grace, seconds(tc.limit))
			got := figures{Reserve(grace).Seconds(), budget.Seconds(), WithdrawTimeout(budget).Seconds()}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(near)); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
