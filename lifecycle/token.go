package lifecycle

// TokenAudience is the audience of the pod-bound token by which a pod that has its
// node's addresses proves which one it is. A hook sends it as a bearer token.
const TokenAudience = "conndrain"
