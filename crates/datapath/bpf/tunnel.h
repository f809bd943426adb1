/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Headers of a tunnel to the RAN. */
#pragma once

#include "route.h"
#include "tables.h"

/* Writes UDP and GTP-U before the packet, which begins `headers` octets after `at`. */
static __always_inline int write_tunnel(struct xdp_md *ctx, __u32 at, const struct downlink *rule, __u32 total)
{
	int marked = rule->flags & DOWN_QFI;
	__u32 length = total + (marked ? GTP_WITH_CONTAINER : GTP_PLAIN);
	struct udphdr *udp = start_of(ctx) + at;
	struct gtp *gtp = (void *)(udp + 1);

	if ((void *)(gtp + 1) > end_of(ctx))
		return 0;
	udp->source = bpf_htons(GTP_PORT);
	udp->dest = bpf_htons(GTP_PORT);
	udp->len = bpf_htons(length + sizeof(*udp));
	udp->check = 0;
	gtp->flags = marked ? 0x34 : 0x30;
	gtp->kind = GTP_G_PDU;
	gtp->length = bpf_htons(length - GTP_PLAIN);
	gtp->teid = bpf_htonl(rule->teid);
	if (marked) {
		__u8 *container = (void *)(gtp + 1);
		__u8 qfi = rule->flags >> QFI_SHIFT & 0x3f;

		if ((void *)(container + 8) > end_of(ctx))
			return 0;
		container[0] = 0;
		container[1] = 0;
		container[2] = 0;
		container[3] = PDU_SESSION_CONTAINER;
		container[4] = 1;
		/* DL or UL PDU SESSION INFORMATION, TS 38.415 5.5.2 */
		container[5] = rule->flags & FROM_UE_CONTAINER ? 0x10 : 0;
		container[6] = (rule->flags & DOWN_RQI ? 0x40 : 0) | qfi;
		container[7] = 0;
	}
	return 1;
}

static __always_inline int write_v4(struct xdp_md *ctx, __u32 destination, __u32 length, __u16 id)
{
	struct iphdr *ip = start_of(ctx) + ETH_HLEN;
	const __u16 *words = (void *)ip;
	__u64 sum = 0;
	int i;

	if ((void *)(ip + 1) > end_of(ctx))
		return 0;
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(length);
	ip->id = bpf_htons(id);
	ip->frag_off = 0;
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->check = 0;
	ip->saddr = config.n3_v4[module_of(ctx)];
	ip->daddr = destination;
#pragma unroll
	for (i = 0; i < 10; i++)
		sum += words[i];
	ip->check = ~fold(sum);
	return 1;
}

static __always_inline int write_v6(struct xdp_md *ctx, const __u32 *destination, __u32 length)
{
	struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	__u32 payload = length - sizeof(*ip), module = module_of(ctx);
	__u64 sum;
	__u16 check;
	int i;

	if ((void *)(udp + 1) > end_of(ctx))
		return 0;
	*(__be32 *)ip = bpf_htonl(6u << 28);
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = 64;
#pragma unroll
	for (i = 0; i < 4; i++) {
		ip->saddr.s6_addr32[i] = config.n3_v6[module][i];
		ip->daddr.s6_addr32[i] = destination[i];
	}
	/* RFC 8200 8.1: the UDP checksum is mandatory with IPv6. */
	sum = sum_from(ctx, ETH_HLEN + sizeof(*ip));
	sum += bpf_htonl(payload);
	sum += bpf_htonl(IPPROTO_UDP);
#pragma unroll
	for (i = 0; i < 4; i++)
		sum += (__u64)config.n3_v6[module][i] + destination[i];
	check = ~fold(sum);
	ip = start_of(ctx) + ETH_HLEN;
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end_of(ctx))
		return 0;
	udp->check = check ? check : 0xffff;
	return 1;
}

/* Returns the length of a tunnel's headers before the packet, in octets. */
static __always_inline __u32 outer_octets(const struct downlink *rule)
{
	__u32 gtp = sizeof(struct udphdr) + (rule->flags & DOWN_QFI ? GTP_WITH_CONTAINER : GTP_PLAIN);

	return gtp + (rule->flags & DOWN_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
}

/*
 * Finds the next hop of packets of `total` octets in an existing tunnel. Returns 0 if they cannot
 * leave from here.
 */
static __always_inline int reach_tunnel(struct xdp_md *ctx, struct bpf_fib_lookup *hop, const struct downlink *rule,
					__u32 total)
{
	__u32 outer = outer_octets(rule), module = module_of(ctx);

	if (rule->flags & DOWN_IPV4) {
		hop->family = AF_INET;
		hop->ipv4_src = config.n3_v4[module];
		hop->ipv4_dst = rule->address[0];
		if (!config.addresses_v4)
			return 0;
	} else {
		hop->family = AF_INET6;
		hop->ipv6_src[0] = config.n3_v6[module][0];
		hop->ipv6_src[1] = config.n3_v6[module][1];
		hop->ipv6_src[2] = config.n3_v6[module][2];
		hop->ipv6_src[3] = config.n3_v6[module][3];
		hop->ipv6_dst[0] = rule->address[0];
		hop->ipv6_dst[1] = rule->address[1];
		hop->ipv6_dst[2] = rule->address[2];
		hop->ipv6_dst[3] = rule->address[3];
		if (!config.addresses_v6 || total + outer > CHUNK * (CHUNKS - 2))
			return 0;
	}
	hop->l4_protocol = IPPROTO_UDP;
	hop->sport = bpf_htons(GTP_PORT);
	hop->dport = bpf_htons(GTP_PORT);
	/* The source is constant, so cached next hops are valid. */
	return find_route(ctx, hop, total + outer, 1);
}

/* Decrements the hop limit of the packet at an offset. Returns 0 if the packet is incomplete. */
static __always_inline int hop_at(struct xdp_md *ctx, __u32 at)
{
	if (octet_at(ctx, at) >> 4 == 4) {
		struct iphdr *ip = start_of(ctx) + at;

		if ((void *)(ip + 1) > end_of(ctx))
			return 0;
		hop_v4(ip);
	} else {
		struct ipv6hdr *ip = start_of(ctx) + at;

		if ((void *)(ip + 1) > end_of(ctx))
			return 0;
		ip->hop_limit--;
	}
	return 1;
}

/*
 * Puts the packet of `total` octets at `payload` into a tunnel and sends it. The octets before it
 * are overwritten. `number` distinguishes the packets of a tunnel. `uplink` selects the counter.
 */
static __always_inline int into_tunnel(struct xdp_md *ctx, struct bpf_fib_lookup *hop, const struct downlink *rule,
				       __u32 payload, __u32 total, __u64 number, int uplink)
{
	__u32 outer = outer_octets(rule), frame = end_of(ctx) - start_of(ctx), tunnel;
	struct counters *c;

	if (frame > payload + total && bpf_xdp_adjust_tail(ctx, (int)(payload + total) - (int)frame))
		return drop(N3_SEND);
	if (bpf_xdp_adjust_head(ctx, (int)payload - (int)(ETH_HLEN + outer)))
		return drop(N3_SEND);
	c = counters();
	if (c && uplink) {
		c->uplink_packets++;
		c->uplink_octets += total;
	} else if (c) {
		c->downlink_packets++;
		c->downlink_octets += total;
	}
	tunnel = ETH_HLEN + (rule->flags & DOWN_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	if (!write_tunnel(ctx, tunnel, rule, total))
		return XDP_ABORTED;
	if (rule->flags & DOWN_IPV4) {
		/*
		 * The identification distinguishes fragments. It differs for the packets of a
		 * tunnel, and for most tunnels.
		 */
		if (!write_v4(ctx, rule->address[0], total + outer, number + rule->teid * 0x9e37u))
			return XDP_ABORTED;
		return leave(ctx, hop, bpf_htons(ETH_P_IP));
	}
	if (!write_v6(ctx, rule->address, total + outer))
		return XDP_ABORTED;
	return leave(ctx, hop, bpf_htons(ETH_P_IPV6));
}

/* Removes the tunnel headers of the packet of `total` octets at `payload`, and forwards it. */
static __always_inline int out_of_tunnel(struct xdp_md *ctx, struct bpf_fib_lookup *hop, __u32 version, __u32 payload,
					 __u32 total)
{
	__be16 protocol = version == AF_INET ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u8 addresses[2 * ETH_ALEN];
	struct counters *c;
	__u32 frame;

	if (start_of(ctx) + ETH_HLEN > end_of(ctx))
		return XDP_ABORTED;
	__builtin_memcpy(addresses, start_of(ctx), sizeof(addresses));
	frame = end_of(ctx) - start_of(ctx);
	if (frame > payload + total && bpf_xdp_adjust_tail(ctx, (int)(payload + total) - (int)frame))
		return drop(N6_SEND);
	if (bpf_xdp_adjust_head(ctx, (int)payload - ETH_HLEN))
		return drop(N6_SEND);
	c = counters();
	if (c) {
		c->uplink_packets++;
		c->uplink_octets += total;
	}
	if (config.to_stack) {
		struct ethhdr *ethernet = start_of(ctx);

		if ((void *)(ethernet + 1) > end_of(ctx))
			return XDP_ABORTED;
		__builtin_memcpy(ethernet, addresses, sizeof(addresses));
		ethernet->h_proto = protocol;
		return XDP_PASS;
	}
	if (!hop_at(ctx, ETH_HLEN))
		return XDP_ABORTED;
	return leave(ctx, hop, protocol);
}
