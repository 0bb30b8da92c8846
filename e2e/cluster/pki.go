package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validFor is longer than any cluster of tests lives; it starts an hour ago, for machines whose clock is set back.
const validFor = 30 * 24 * time.Hour

// authority signs every certificate of one cluster.
type authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	server string // URL of the API
}

func newAuthority(server string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of the authority: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "conndrain-e2e", NotBefore: time.Now().Add(-time.Hour)}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate of the authority: %w", err)
	}
	return &authority{cert: ca, key: key, server: server}, nil
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

// sign makes a certificate for a user with its groups; names and addresses make it one for a server, too.
func (a *authority) sign(user string, groups []string, names ...string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key of %s: %w", user, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return pair{}, fmt.Errorf("make serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", user, err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("parse certificate of %s: %w", user, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode key of %s: %w", user, err)
	}
	certPEM, err := cert.EncodeCertificates(signed)
	if err != nil {
		return pair{}, fmt.Errorf("encode certificate of %s: %w", user, err)
	}
	return pair{cert: certPEM, key: keyPEM}, nil
}

// writeCA puts the authority's certificate, which everybody trusts, into dir.
func (a *authority) writeCA(dir string) error {
	pem, err := cert.EncodeCertificates(a.cert)
	if err != nil {
		return fmt.Errorf("encode certificate of the authority: %w", err)
	}
	return writeFile(dir, "ca.crt", pem)
}

// writePair signs, and writes NAME.crt and NAME.key into dir.
func (a *authority) writePair(dir, name, user string, groups []string, names ...string) error {
	p, err := a.sign(user, groups, names...)
	if err != nil {
		return err
	}
	if err := writeFile(dir, name+".crt", p.cert); err != nil {
		return err
	}
	return writeFile(dir, name+".key", p.key)
}

// writeKubeconfig signs, and writes NAME.kubeconfig into dir.
func (a *authority) writeKubeconfig(dir, name, user string, groups ...string) error {
	p, err := a.sign(user, groups)
	if err != nil {
		return err
	}
	ca, err := cert.EncodeCertificates(a.cert)
	if err != nil {
		return fmt.Errorf("encode certificate of the authority: %w", err)
	}
	const only = "conndrain-e2e"
	config := clientcmdapi.NewConfig()
	config.Clusters[only] = &clientcmdapi.Cluster{Server: a.server, CertificateAuthorityData: ca}
	config.AuthInfos[only] = &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	config.Contexts[only] = &clientcmdapi.Context{Cluster: only, AuthInfo: only}
	config.CurrentContext = only
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*config, filepath.Join(dir, name+".kubeconfig")); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}

// writeServiceAccountKey makes the key that signs the tokens of service accounts.
func writeServiceAccountKey(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make key of service accounts: %w", err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode key of service accounts: %w", err)
	}
	return writeFile(dir, "service-accounts.key", pem)
}

func writeFile(dir, name string, content []byte) error {
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
