/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * The user plane in the kernel: what is usual of verdict.rs and pipeline.rs, for both directions, on every interface.
 *
 * Uplink, a G-PDU to one of our N3 addresses loses its tunnel headers and leaves by the kernel's routes. Downlink, a
 * packet to a UE gets them and leaves to the RAN node. Where addresses are translated, the kernel's stack gets uplink packets
 * instead. A packet that is forwarded has its hop counted like a router's.
 * Whatever is unusual passes to the kernel unchanged and uncounted: options, fragments, errors to report, unknown
 * tunnels, packets that must wait, that are too big, or whose next hop is not known yet. User space or the kernel
 * finishes it. Where this program drops, so does the reference, for the same reason.
 *
 * The outer UDP checksum of what comes in is not looked at: the inner packet has its own.
 */
#include "packet.h"
#include "route.h"
#include "tables.h"
#include "tunnel.h"

#define EXTENSIONS 3
#define WITH_FLOW 0x10000

/*
 * Reads optional fields and extension headers of the message at `at` that ends at `end`. Gives the payload's offset in
 * the frame, with WITH_FLOW and the QFI above it where there is an uplink PDU Session Container; or an XDP action, negated.
 *
 * This function and the next ones that are not static are verified once, by themselves.
 */
__noinline int read_chain(struct xdp_md *ctx, __u32 at, __u32 end, __u32 flags)
{
	__u32 offset = at + GTP_PLAIN;
	int next, i, flow = 0;

	if (!(flags & 7))
		return offset & 0xffff;
	if (offset + 4 > end)
		return -drop(MALFORMED);
	next = octet_at(ctx, offset + 3);
	offset += 4;
	for (i = 0; i < EXTENSIONS && flags & 4 && next; i++) {
		int units, length;

		if (offset >= end)
			return -drop(MALFORMED);
		units = octet_at(ctx, offset);
		if (units < 0)
			return -XDP_PASS;
		length = units * 4;
		if (units == 0 || offset + length > end)
			return -drop(MALFORMED);
		if (next == PDU_SESSION_CONTAINER) {
			int kind = octet_at(ctx, offset + 1) >> 4;

			if (kind != 0 && kind != 1)
				return -drop(MALFORMED);
			flow = kind == 1 ? WITH_FLOW | (octet_at(ctx, offset + 2) & 0x3f) << 17 : 0;
		} else if (next & 0x80) {
			return -XDP_PASS;
		}
		next = octet_at(ctx, offset + length - 1);
		offset += length;
	}
	if (flags & 4 && next)
		return -XDP_PASS;
	return (offset & 0xffff) | flow;
}

/* The GTP-U message of `length` octets at offset `at`. */
__noinline int uplink(struct xdp_md *ctx, __u32 at, __u32 length)
{
	struct bpf_fib_lookup hop = {};
	struct uplink rule = {}, *record = 0;
	struct counters *c;
	struct gtp *gtp;
	__u32 end, payload, teid, total, frame, version;
	__u8 addresses[2 * ETH_ALEN];
	int result, believe;

	if (at > 62 || length > LONGEST)
		return XDP_PASS;
	if (length < GTP_PLAIN)
		return drop(MALFORMED);
	gtp = start_of(ctx) + at;
	if ((void *)(gtp + 1) > end_of(ctx))
		return XDP_PASS;
	if (gtp->flags >> 4 != 3 || bpf_ntohs(gtp->length) + GTP_PLAIN > length)
		return drop(MALFORMED);
	if (gtp->kind != GTP_G_PDU)
		return XDP_PASS;
	end = at + GTP_PLAIN + bpf_ntohs(gtp->length);
	teid = bpf_ntohl(gtp->teid);
	result = read_chain(ctx, at, end, gtp->flags);
	if (result < 0)
		return -result;
	payload = result & 0xffff;
	if (!find_uplink(teid, &rule, &record) || rule.flags & UP_OVERFLOW)
		return XDP_PASS;
	if (rule.flows != ALL_FLOWS && (!(result & WITH_FLOW) || !(rule.flows >> (result >> 17 & 63) & 1)))
		return drop(WRONG_FLOW);

	if (payload >= end || payload >= LONGEST)
		return drop(INNER_MALFORMED);
	switch (octet_at(ctx, payload) >> 4) {
	case 4: {
		struct iphdr *ip = start_of(ctx) + payload;

		if (payload + sizeof(*ip) > end)
			return drop(INNER_MALFORMED);
		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_PASS;
		total = bpf_ntohs(ip->tot_len);
		if (ip->ihl < 5 || total < ip->ihl * 4 || payload + total > end)
			return drop(INNER_MALFORMED);
		if (!(rule.flags & UP_IPV4) || ip->saddr != rule.ipv4)
			return drop(SPOOFED);
		if (ip->ihl != 5 || ip->ttl <= 1)
			return XDP_PASS;
		hop.family = AF_INET;
		hop.l4_protocol = ip->protocol;
		hop.tos = ip->tos;
		hop.ipv4_src = ip->saddr;
		hop.ipv4_dst = ip->daddr;
		break;
	}
	case 6: {
		struct ipv6hdr *ip = start_of(ctx) + payload;
		__u32 *address;

		if (payload + sizeof(*ip) > end)
			return drop(INNER_MALFORMED);
		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_PASS;
		total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		if (payload + total > end)
			return drop(INNER_MALFORMED);
		address = ip->saddr.s6_addr32;
		if (!(rule.flags & UP_IPV6) || address[0] != (__u32)rule.prefix || address[1] != rule.prefix >> 32) {
			if (is_link_scope(&ip->saddr))
				return XDP_PASS;
			return drop(SPOOFED);
		}
		if (is_link_scope(&ip->daddr) || ip->hop_limit <= 1 || ip->nexthdr == NEXTHDR_HOP)
			return XDP_PASS;
		hop.family = AF_INET6;
		hop.l4_protocol = ip->nexthdr;
		__builtin_memcpy(hop.ipv6_src, &ip->saddr, sizeof(hop.ipv6_src));
		__builtin_memcpy(hop.ipv6_dst, &ip->daddr, sizeof(hop.ipv6_dst));
		break;
	}
	default:
		return drop(INNER_MALFORMED);
	}
	if (!(rule.flags & UP_GATE))
		return drop(GATE_CLOSED);
	if (!(rule.flags & UP_FORWARD))
		return drop(RULE);

	version = hop.family;
	if (!config.to_stack) {
		believe = to_next_hop(&hop);
		if (believe < 0 || !find_route(ctx, &hop, total, believe))
			return XDP_PASS;
	}
	if (is_watched(&record->state, rule.flags >> UP_WATCH_SHIFT, total))
		return XDP_PASS;
	if (!conforms(&record->state, rule.cost, total))
		return drop(RATE_EXCEEDED);
	if (start_of(ctx) + ETH_HLEN > end_of(ctx))
		return XDP_ABORTED;
	__builtin_memcpy(addresses, start_of(ctx), sizeof(addresses));
	frame = end_of(ctx) - start_of(ctx);
	if (frame > payload + total && bpf_xdp_adjust_tail(ctx, (int)(payload + total) - (int)frame))
		return drop(N6_SEND);
	if (bpf_xdp_adjust_head(ctx, (int)payload - ETH_HLEN))
		return drop(N6_SEND);
	count(&record->state, total);
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
		ethernet->h_proto = version == AF_INET ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		return XDP_PASS;
	}
	if (version == AF_INET) {
		struct iphdr *ip = start_of(ctx) + ETH_HLEN;

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_ABORTED;
		hop_v4(ip);
		return leave(ctx, &hop, bpf_htons(ETH_P_IP));
	} else {
		struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN;

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_ABORTED;
		ip->hop_limit--;
		return leave(ctx, &hop, bpf_htons(ETH_P_IPV6));
	}
}

/* The packet of `total` octets behind the Ethernet header, for the UE at this position of the arrays. */
__noinline int downlink(struct xdp_md *ctx, __u32 position, __u32 total)
{
	struct bpf_fib_lookup hop = {};
	struct downlink rule = {}, *record = 0;
	__u32 outer, tunnel, frame, version;
	struct counters *c;
	__u64 before;

	if (!find_downlink(position, &rule, &record) || rule.flags & DOWN_OVERFLOW)
		return XDP_PASS;
	if (!(rule.flags & DOWN_GATE))
		return drop(GATE_CLOSED);
	if ((rule.flags & ACTION) == ACTION_DROP)
		return drop(RULE);
	if ((rule.flags & ACTION) != ACTION_FORWARD)
		return XDP_PASS;
	outer = sizeof(struct udphdr) + (rule.flags & DOWN_QFI ? GTP_WITH_CONTAINER : GTP_PLAIN);
	if (rule.flags & DOWN_IPV4) {
		outer += sizeof(struct iphdr);
		hop.family = AF_INET;
		hop.ipv4_src = config.n3_v4[0];
		hop.ipv4_dst = rule.address[0];
		if (!config.addresses_v4)
			return XDP_PASS;
	} else if (rule.flags & DOWN_IPV6) {
		outer += sizeof(struct ipv6hdr);
		hop.family = AF_INET6;
		hop.ipv6_src[0] = config.n3_v6[0][0];
		hop.ipv6_src[1] = config.n3_v6[0][1];
		hop.ipv6_src[2] = config.n3_v6[0][2];
		hop.ipv6_src[3] = config.n3_v6[0][3];
		hop.ipv6_dst[0] = rule.address[0];
		hop.ipv6_dst[1] = rule.address[1];
		hop.ipv6_dst[2] = rule.address[2];
		hop.ipv6_dst[3] = rule.address[3];
		if (!config.addresses_v6 || total + outer > CHUNK * (CHUNKS - 2))
			return XDP_PASS;
	} else {
		return drop(NO_TUNNEL);
	}
	hop.l4_protocol = IPPROTO_UDP;
	hop.sport = bpf_htons(GTP_PORT);
	hop.dport = bpf_htons(GTP_PORT);
	/* the source is always the same */
	if (!find_route(ctx, &hop, total + outer, 1))
		return XDP_PASS;
	if (is_watched(&record->state, rule.flags >> DOWN_WATCH_SHIFT, total))
		return XDP_PASS;
	if (!conforms(&record->state, rule.cost, total))
		return drop(RATE_EXCEEDED);
	version = octet_at(ctx, ETH_HLEN) >> 4;
	frame = end_of(ctx) - start_of(ctx);
	if (frame > ETH_HLEN + total && bpf_xdp_adjust_tail(ctx, (int)(ETH_HLEN + total) - (int)frame))
		return drop(N3_SEND);
	if (bpf_xdp_adjust_head(ctx, -(int)outer))
		return drop(N3_SEND);
	before = count(&record->state, total);
	c = counters();
	if (c) {
		c->downlink_packets++;
		c->downlink_octets += total;
	}
	if (version == 4) {
		struct iphdr *ip = start_of(ctx) + ETH_HLEN + outer;

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_ABORTED;
		hop_v4(ip);
	} else {
		struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN + outer;

		if ((void *)(ip + 1) > end_of(ctx))
			return XDP_ABORTED;
		ip->hop_limit--;
	}
	tunnel = ETH_HLEN + (rule.flags & DOWN_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	if (!write_tunnel(ctx, tunnel, &rule, total))
		return XDP_ABORTED;
	if (rule.flags & DOWN_IPV4) {
		/* fragments on the way are told apart by it: different for the packets of a tunnel, and of most tunnels */
		if (!write_v4(ctx, rule.address[0], total + outer, before + rule.teid * 0x9e37u))
			return XDP_ABORTED;
		return leave(ctx, &hop, bpf_htons(ETH_P_IP));
	}
	if (!write_v6(ctx, rule.address, total + outer))
		return XDP_ABORTED;
	return leave(ctx, &hop, bpf_htons(ETH_P_IPV6));
}

/* Whether the UDP header at `at` of a packet that ends at `end` is one of GTP-U; gives its octets after the header. */
static __always_inline int is_gtp(struct xdp_md *ctx, __u32 at, __u32 end, __u32 *length)
{
	struct udphdr *udp = start_of(ctx) + at;

	if ((void *)(udp + 1) > end_of(ctx) || udp->dest != bpf_htons(GTP_PORT))
		return 0;
	*length = bpf_ntohs(udp->len) - sizeof(*udp);
	return bpf_ntohs(udp->len) >= sizeof(*udp) && at + bpf_ntohs(udp->len) <= end;
}

static __always_inline int receive_v4(struct xdp_md *ctx, __u32 frame)
{
	struct iphdr *ip = start_of(ctx) + ETH_HLEN;
	const volatile struct range *range;
	__u32 i, total, length = 0;
	__u64 offset;

	if ((void *)(ip + 1) > end_of(ctx) || ip->version != 4 || ip->ihl != 5)
		return XDP_PASS;
	total = bpf_ntohs(ip->tot_len);
	if (total < sizeof(*ip) || ETH_HLEN + total > frame)
		return XDP_PASS;
#pragma unroll
	for (i = 0; i < ADDRESSES; i++) {
		if (i >= config.addresses_v4)
			break;
		if (ip->daddr != config.n3_v4[i])
			continue;
		if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff))
			return XDP_PASS;
		if (!is_gtp(ctx, ETH_HLEN + sizeof(*ip), ETH_HLEN + total, &length))
			return XDP_PASS;
		if (range_v4(bpf_ntohl(ip->saddr)))
			return drop(FROM_UE);
		return uplink(ctx, ETH_HLEN + sizeof(*ip) + sizeof(struct udphdr), length);
	}
	range = range_v4(bpf_ntohl(ip->daddr));
	if (!range)
		return XDP_PASS;
	offset = bpf_ntohl(ip->daddr) - range->base;
	if (ip->protocol == IPPROTO_ICMP && octet_at(ctx, ETH_HLEN + sizeof(*ip)) == ICMP_REDIRECT &&
	    total > sizeof(*ip))
		return drop(LINK_LOCAL);
	if (offset >= range->size || total > range->mtu || ip->ttl <= 1)
		return XDP_PASS;
	return downlink(ctx, range->start + offset, total);
}

static __always_inline int receive_v6(struct xdp_md *ctx, __u32 frame)
{
	struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN;
	const volatile struct range *range;
	__u32 i, total, length = 0;
	__u64 offset;

	if ((void *)(ip + 1) > end_of(ctx) || ip->version != 6)
		return XDP_PASS;
	total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ETH_HLEN + total > frame)
		return XDP_PASS;
#pragma unroll
	for (i = 0; i < ADDRESSES; i++) {
		if (i >= config.addresses_v6)
			break;
		if (ip->daddr.s6_addr32[0] != config.n3_v6[i][0] || ip->daddr.s6_addr32[1] != config.n3_v6[i][1] ||
		    ip->daddr.s6_addr32[2] != config.n3_v6[i][2] || ip->daddr.s6_addr32[3] != config.n3_v6[i][3])
			continue;
		if (ip->nexthdr != IPPROTO_UDP ||
		    !is_gtp(ctx, ETH_HLEN + sizeof(*ip), ETH_HLEN + total, &length))
			return XDP_PASS;
		if (range_v6(prefix_of(&ip->saddr)))
			return drop(FROM_UE);
		return uplink(ctx, ETH_HLEN + sizeof(*ip) + sizeof(struct udphdr), length);
	}
	range = range_v6(prefix_of(&ip->daddr));
	if (!range)
		return XDP_PASS;
	offset = prefix_of(&ip->daddr) - range->base;
	if (offset >= range->size || total > range->mtu || ip->hop_limit <= 1 || ip->nexthdr == NEXTHDR_HOP)
		return XDP_PASS;
	return downlink(ctx, range->start + offset, total);
}

SEC("xdp")
int upf(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	__u32 frame = end_of(ctx) - start_of(ctx);

	if ((void *)(ethernet + 1) > end_of(ctx) || frame > LONGEST)
		return XDP_PASS;
	switch (ethernet->h_proto) {
	case bpf_htons(ETH_P_IP):
		return receive_v4(ctx, frame);
	case bpf_htons(ETH_P_IPV6):
		return receive_v6(ctx, frame);
	default:
		return XDP_PASS;
	}
}

/* The kernel lends its routes only to programs whose licence is compatible with its own. */
char licence[] SEC("license") = "Dual BSD/GPL";
