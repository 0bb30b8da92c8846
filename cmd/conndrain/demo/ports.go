package demo

// The ports of the scene.
const (
	servicePort  = 80
	podPort      = 8080
	metricsPort  = 9090
	databasePort = 5432
)
