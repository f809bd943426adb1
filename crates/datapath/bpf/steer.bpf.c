/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * Frames that the drivers in user space (AF_PACKET, AF_XDP) take from an interface: G-PDUs to our
 * N3 addresses, and packets for UEs. The kernel, and through it the sockets, handles all other
 * frames:
 * - signalling, fragments and IPv4 options
 * - packets without hops left, or above the MTU of the UE's link
 * - packets that segmentation offload has merged
 *
 * Three programs share one decision. AF_XDP takes a frame by the first. AF_PACKET gets a copy of
 * the frames that pass the second. The third runs afterwards and keeps the same frames from the
 * rest of the kernel.
 */
#include "packet.h"
#include "entry.h"

/* linux/bpf.h of Linux 6.6 */
#define TCX_NEXT -1
#define TCX_DROP 2
/* linux/if_packet.h */
#define PACKET_HOST 0
#define QUEUES 64

const volatile struct config config = {};

/* Indexed by interface (its position in the configuration) and queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, INTERFACES * QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* Headers after the IP header. */
struct tunnel {
	struct udphdr udp;
	struct gtp gtp;
} __attribute__((packed));

static __always_inline int is_g_pdu(const struct tunnel *tunnel)
{
	return tunnel->udp.dest == bpf_htons(GTP_PORT) && tunnel->gtp.kind == GTP_G_PDU;
}

/* `octets` octets of the frame follow its Ethernet header. */
static __always_inline int takes_v4(const struct iphdr *ip, const struct tunnel *tunnel, __u32 octets)
{
	__u32 i, to = bpf_ntohl(ip->daddr), total = bpf_ntohs(ip->tot_len);

	if (ip->version != 4 || ip->ihl != 5 || total < sizeof(*ip) || total > octets)
		return 0;
#pragma unroll
	for (i = 0; i < ADDRESSES; i++) {
		if (i >= config.addresses_v4)
			break;
		if (ip->daddr == config.n3_v4[i])
			return ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x3fff)) && is_g_pdu(tunnel);
	}
#pragma unroll
	for (i = 0; i < RANGES; i++) {
		if (i >= config.ranges_v4)
			break;
		/* The first address of a pool belongs to the machine. */
		if ((to & config.v4[i].mask) == config.v4[i].base)
			return to != config.v4[i].base + 1 && ip->ttl > 1 && total <= config.v4[i].mtu;
	}
	return 0;
}

static __always_inline int takes_v6(const struct ipv6hdr *ip, const struct tunnel *tunnel, __u32 octets)
{
	__u32 i, total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	__u64 to = prefix_of(&ip->daddr);

	if (ip->version != 6 || total > octets)
		return 0;
#pragma unroll
	for (i = 0; i < ADDRESSES; i++) {
		if (i >= config.addresses_v6)
			break;
		if (ip->daddr.s6_addr32[0] == config.n3_v6[i][0] && ip->daddr.s6_addr32[1] == config.n3_v6[i][1] &&
		    ip->daddr.s6_addr32[2] == config.n3_v6[i][2] && ip->daddr.s6_addr32[3] == config.n3_v6[i][3])
			return ip->nexthdr == IPPROTO_UDP && is_g_pdu(tunnel);
	}
#pragma unroll
	for (i = 0; i < RANGES; i++) {
		if (i >= config.ranges_v6)
			break;
		if ((to & config.v6[i].mask) != config.v6[i].base)
			continue;
		if (to == config.v6[i].base && !ip->daddr.s6_addr32[2] && ip->daddr.s6_addr32[3] == bpf_htonl(1))
			return 0;
		return ip->hop_limit > 1 && ip->nexthdr != NEXTHDR_HOP && total <= config.v6[i].mtu;
	}
	return 0;
}

/* A short packet has no tunnel: missing octets read as zeros. */
static __always_inline int takes(struct __sk_buff *skb)
{
	struct tunnel tunnel = {};
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip = {};

	if (skb->gso_size || skb->vlan_present || skb->pkt_type != PACKET_HOST || skb->len > LONGEST)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip.v4, sizeof(ip.v4)))
			return 0;
		bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip.v4), &tunnel, sizeof(tunnel));
		return takes_v4(&ip.v4, &tunnel, skb->len - ETH_HLEN);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip.v6, sizeof(ip.v6)))
			return 0;
		bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip.v6), &tunnel, sizeof(tunnel));
		return takes_v6(&ip.v6, &tunnel, skb->len - ETH_HLEN);
	}
	return 0;
}

/* Returns the number of octets that an AF_PACKET socket gets of a frame. */
SEC("socket")
int steer_in(struct __sk_buff *skb)
{
	return takes(skb) ? skb->len : 0;
}

/* Decides whether the rest of the kernel gets the frame. */
SEC("classifier")
int steer_off(struct __sk_buff *skb)
{
	return takes(skb) ? TCX_DROP : TCX_NEXT;
}

SEC("xdp")
int steer_xsk(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	__u32 frame = end_of(ctx) - start_of(ctx), i, place = INTERFACES, taken = 0;
	struct tunnel tunnel = {}, *behind;

	if ((void *)(ethernet + 1) > end_of(ctx) || frame > LONGEST)
		return XDP_PASS;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_PASS;
		behind = (void *)(ip + 1);
		if ((void *)(behind + 1) <= end_of(ctx))
			tunnel = *behind;
		taken = takes_v4(ip, &tunnel, frame - ETH_HLEN);
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_PASS;
		behind = (void *)(ip + 1);
		if ((void *)(behind + 1) <= end_of(ctx))
			tunnel = *behind;
		taken = takes_v6(ip, &tunnel, frame - ETH_HLEN);
	}
	if (!taken || ctx->rx_queue_index >= QUEUES)
		return XDP_PASS;
#pragma unroll
	for (i = 0; i < INTERFACES; i++) {
		if (i < config.interface_count && config.interfaces[i] == ctx->ingress_ifindex)
			place = i;
	}
	if (place == INTERFACES)
		return XDP_PASS;
	/* Without a socket on the queue, the frame goes to the kernel. */
	return bpf_redirect_map(&xsks, place * QUEUES + ctx->rx_queue_index, XDP_PASS);
}

char licence[] SEC("license") = "Dual BSD/GPL";
