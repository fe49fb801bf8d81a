// Command dns is the test cluster's name server. It resolves the names of services from the API server:
// cluster IPs, headless services (one address per ready endpoint), and a pod's host name below its headless
// service. Every other name does not exist. CoreDNS would add about a hundred modules to the build; this
// command uses only modules that the kubelet needs anyway.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	suffix        = ".svc.cluster.local"
	udpLimit      = 512
	idleLimit     = 10 * time.Second
	secondsToLive = 1 // tests move services to other pods and must not wait for caches
)

type resolver struct {
	services  corelisters.ServiceLister
	endpoints discoverylisters.EndpointSliceLister
}

// addresses returns the IPv4 addresses of a service's name without the cluster's suffix, and whether the
// name exists. The name is SERVICE.NAMESPACE or HOST.SERVICE.NAMESPACE.
func (r *resolver) addresses(name string) ([]net.IP, bool) {
	labels := strings.Split(name, ".")
	host := ""
	if len(labels) == 3 {
		host, labels = labels[0], labels[1:]
	}
	if len(labels) != 2 {
		return nil, false
	}
	service, err := r.services.Services(labels[1]).Get(labels[0])
	if err != nil {
		return nil, false
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		return []net.IP{net.ParseIP(service.Spec.ClusterIP)}, host == ""
	}
	found := r.headless(service, host)
	return found, host == "" || len(found) > 0
}

func (r *resolver) headless(service *corev1.Service, host string) []net.IP {
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name})
	endpointSlices, err := r.endpoints.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil
	}
	var found []net.IP
	for _, endpointSlice := range endpointSlices {
		for _, endpoint := range endpointSlice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			wanted := host == "" || (endpoint.Hostname != nil && *endpoint.Hostname == host)
			if !ready || !wanted {
				continue
			}
			for _, address := range endpoint.Addresses {
				found = append(found, net.ParseIP(address))
			}
		}
	}
	return found
}

// reply answers one query, or returns nil if the bytes are not a query.
func (r *resolver) reply(query []byte, limit int) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true,
			RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
			RCode: dnsmessage.RCodeNameError,
		},
		Questions: []dnsmessage.Question{question},
	}
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	if service, ours := strings.CutSuffix(name, suffix); ours {
		if found, exists := r.addresses(service); exists {
			answer.RCode = dnsmessage.RCodeSuccess
			answer.Answers = records(question, found)
		}
	}
	packed, err := answer.Pack()
	if err == nil && len(packed) > limit { // the client asks again over TCP
		answer.Answers, answer.Truncated = nil, true
		packed, err = answer.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

func records(question dnsmessage.Question, found []net.IP) []dnsmessage.Resource {
	if !slices.Contains([]dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeALL}, question.Type) {
		return nil
	}
	var all []dnsmessage.Resource
	for _, address := range found {
		if v4 := address.To4(); v4 != nil {
			all = append(all, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{
					Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: secondsToLive,
				},
				Body: &dnsmessage.AResource{A: [4]byte(v4)},
			})
		}
	}
	return all
}

func (r *resolver) serveUDP(socket net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		size, client, err := socket.ReadFrom(buffer)
		if err != nil {
			log.Fatal(err)
		}
		if answer := r.reply(buffer[:size], udpLimit); answer != nil {
			_, _ = socket.WriteTo(answer, client)
		}
	}
}

func (r *resolver) serveTCP(connection net.Conn) {
	defer connection.Close()
	for {
		_ = connection.SetDeadline(time.Now().Add(idleLimit))
		var size uint16
		if binary.Read(connection, binary.BigEndian, &size) != nil {
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(connection, query); err != nil {
			return
		}
		answer := r.reply(query, 1<<16-1)
		if answer == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
		if _, err := connection.Write(append(framed, answer...)); err != nil {
			return
		}
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server and credentials")
	listen := flag.String("listen", "", "address and port, UDP and TCP")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	names := &resolver{factory.Core().V1().Services().Lister(), factory.Discovery().V1().EndpointSlices().Lister()}
	datagrams, err := net.ListenPacket("udp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	connections, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	log.Print("ready")
	go names.serveUDP(datagrams)
	for {
		connection, err := connections.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go names.serveTCP(connection)
	}
}
