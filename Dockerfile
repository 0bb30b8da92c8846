# The images: docker build --target conndrain-node . and so on; nothing of them needs a shell, a libc or a certificate.
# `make image` reads this file too, and makes the same images without a daemon: what it understands is in e2e/tools/image.
ARG GO=1.26

FROM --platform=$BUILDPLATFORM golang:$GO AS build
WORKDIR /src
COPY . .
ARG TARGETOS=linux TARGETARCH=amd64 VERSION=v0
ENV OUT=/out
RUN make build build-example GOOS=$TARGETOS GOARCH=$TARGETARCH VERSION=$VERSION OUT=$OUT

# the helper of a node: root, because Kubernetes gives NET_ADMIN to nobody else
FROM scratch AS conndrain-node
ARG VERSION=v0
LABEL org.opencontainers.image.title=conndrain-node \
      org.opencontainers.image.description="Answers the preStop hooks of a node's pods" \
      org.opencontainers.image.source=https://github.com/conndrain/conndrain \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION
COPY --from=build /out/conndrain-node /conndrain-node
ENTRYPOINT ["/conndrain-node"]

# the hook: to be copied, mounted or run as a sidecar
FROM scratch AS prestop
ARG VERSION=v0
LABEL org.opencontainers.image.title=prestop \
      org.opencontainers.image.description="Holds a pod, as its preStop hook, until its last session has ended" \
      org.opencontainers.image.source=https://github.com/conndrain/conndrain \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION
COPY --from=build /out/prestop /prestop
USER 65532:65532
ENTRYPOINT ["/prestop"]

# wait and sessions, for a look at a node
FROM scratch AS conndrain
ARG VERSION=v0
LABEL org.opencontainers.image.title=conndrain \
      org.opencontainers.image.description="Waits for the last session of an address, by the kernel's connection tracking" \
      org.opencontainers.image.source=https://github.com/conndrain/conndrain \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION
COPY --from=build /out/conndrain /conndrain
ENTRYPOINT ["/conndrain"]

# what manifests/examples/ runs: a server of slow downloads with the hook copied into its image, and a client
FROM scratch AS example
ARG VERSION=v0
LABEL org.opencontainers.image.title=example \
      org.opencontainers.image.description="A server of slow downloads and its client, to try conndrain with" \
      org.opencontainers.image.source=https://github.com/conndrain/conndrain \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION
COPY --from=build /out/traffic /example
COPY --from=build /out/prestop /prestop
USER 65532:65532
ENTRYPOINT ["/example"]
