/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * User plane in the kernel: the fast path of verdict.rs and pipeline.rs, for both directions, on
 * every interface.
 *
 * Uplink, a G-PDU to one of our N3 addresses loses its tunnel headers and leaves by the kernel's
 * routes. Downlink, a packet to a UE gets them and leaves to the RAN node. With address
 * translation, the kernel's stack gets uplink packets instead. The hop limit of a forwarded packet
 * is decremented, as in a router.
 *
 * A session with more rules than one entry holds is classified by a second program, reached by a
 * tail call (flow_rules.h). All other packets pass to the kernel unchanged and uncounted, and user
 * space or the kernel handles them: options, fragments, errors to report, unknown tunnels, packets
 * to be buffered or too big, and unknown next hops. Where this program drops a packet, the
 * reference drops it for the same reason.
 *
 * The outer UDP checksum of received packets is not checked: the inner packet has a checksum.
 */
#include "packet.h"
#include "access.h"
#include "flow_rules.h"
#include "route.h"
#include "tables.h"
#include "cpu_steering.h"
#include "tunnel.h"

#define EXTENSIONS 3

/*
 * Parses optional fields and extension headers of the message at `at`, which ends at `end`. Returns
 * the payload's offset in the frame, with the flags of packet.h for the PDU Session Container above
 * it; or a negated XDP action.
 *
 * The verifier checks this function and the following non-static ones once, separately.
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
			flow = CONTAINER | (octet_at(ctx, offset + 2) & 0x7f) << CONTAINER_SHIFT;
			if (kind == 1)
				flow |= UPLINK_CONTAINER;
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

/*
 * Processes the GTP-U message of `length` octets at offset `at`, whose source has the slot number
 * `place`.
 */
__noinline int uplink(struct xdp_md *ctx, __u32 at, __u32 length, __u32 place)
{
	struct bpf_fib_lookup hop = {};
	struct uplink rule = {}, *record = 0;
	struct gtp *gtp;
	__u32 end, payload, teid, total, version, index = 0;
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
	if (!find_uplink(teid, &rule, &record, &index))
		return XDP_PASS;
	if (config.own_peer_only && place != ANY_PLACE) {
		__u32 own = rule.flags >> UP_PEER_SHIFT & UP_PEER;

		if (own != place && own != ANY_PLACE)
			return XDP_PASS;
	}
	if (rule.flags & UP_OVERFLOW)
		return hand(BY_UPLINK_RULES, index, rule.sequence, rule.cost, result & ~0xffff, payload, end);
	if (rule.flows != ALL_FLOWS && ((result & (CONTAINER | UPLINK_CONTAINER)) != (CONTAINER | UPLINK_CONTAINER) ||
					!(rule.flows >> (result >> CONTAINER_SHIFT & 63) & 1)))
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
		if (ip->ihl == 5 ? !is_intact_v4(ip) : !is_intact(ctx, payload, ip->ihl))
			return drop(INNER_MALFORMED);
		if (!(rule.flags & UP_IPV4) || ip->saddr != rule.ipv4)
			return drop(SPOOFED);
		if (is_protected_v4(ip->daddr))
			return drop(PROTECTED_DESTINATION);
		if (config.isolates && range_v4(bpf_ntohl(ip->daddr)))
			return XDP_PASS;
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
		if (is_link_scope(&ip->daddr))
			return XDP_PASS;
		if (is_protected_v6(&ip->daddr))
			return drop(PROTECTED_DESTINATION);
		if (config.isolates && range_v6(prefix_of(&ip->daddr)))
			return XDP_PASS;
		if (ip->hop_limit <= 1 || ip->nexthdr == NEXTHDR_HOP)
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
		believe = to_next_hop(ctx, &hop);
		if (believe < 0 || !find_route(ctx, &hop, total, believe))
			return XDP_PASS;
	}
	if (!(rule.flags & UP_LEAN) && is_watched(&record->state, rule.flags >> UP_WATCH_SHIFT, total))
		return XDP_PASS;
	if (!conforms(&record->state.expected, rule.cost, total))
		return drop(RATE_EXCEEDED);
	if (!(rule.flags & UP_LEAN))
		count(&record->state, total);
	return out_of_tunnel(ctx, &hop, version, payload, total);
}

/*
 * Processes the packet of `total` octets after the Ethernet header, for the UE with this index
 * value.
 */
__noinline int downlink(struct xdp_md *ctx, __u32 entry, __u32 total)
{
	struct bpf_fib_lookup hop = {};
	struct downlink rule = {}, *record = 0;
	__u64 number;

	if (total > LONGEST)
		return XDP_PASS;
	if (!find_downlink(entry, &rule, &record))
		return XDP_PASS;
	if (rule.flags & DOWN_OVERFLOW)
		return hand(BY_DOWNLINK_RULES, entry >> 8, rule.sequence, rule.cost, 0, ETH_HLEN, ETH_HLEN + total);
	if (!(rule.flags & DOWN_GATE))
		return drop(GATE_CLOSED);
	if ((rule.flags & ACTION) == ACTION_DROP)
		return drop(RULE);
	if ((rule.flags & ACTION) != ACTION_FORWARD)
		return XDP_PASS;
	if (!(rule.flags & (DOWN_IPV4 | DOWN_IPV6)))
		return drop(NO_TUNNEL);
	if (!reach_tunnel(ctx, &hop, &rule, total))
		return XDP_PASS;
	if (!(rule.flags & DOWN_LEAN) && is_watched(&record->state, rule.flags >> DOWN_WATCH_SHIFT, total))
		return XDP_PASS;
	if (!conforms(&record->state.expected, rule.cost, total))
		return drop(RATE_EXCEEDED);
	if (!hop_at(ctx, ETH_HLEN))
		return XDP_ABORTED;
	number = rule.flags & DOWN_LEAN ? forwarded() : count(&record->state, total);
	return into_tunnel(ctx, &hop, &rule, ETH_HLEN, total, number, 0);
}

/*
 * Returns 1 if the UDP header at `at` of a packet that ends at `end` is one of GTP-U. Sets its
 * octets after the header.
 */
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
	__u32 i, total, place, length = 0, entry = 0;
	const struct behind *behind;
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
		if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff) || !is_intact_v4(ip))
			return XDP_PASS;
		if (!is_gtp(ctx, ETH_HLEN + sizeof(*ip), ETH_HLEN + total, &length))
			return XDP_PASS;
		if (range_v4(bpf_ntohl(ip->saddr)))
			return drop(FROM_UE);
		place = source_place_v4(ip->saddr);
		if (!place)
			return XDP_PASS;
		return uplink(ctx, ETH_HLEN + sizeof(*ip) + sizeof(struct udphdr), length, place);
	}
	range = range_v4(bpf_ntohl(ip->daddr));
	if (range) {
		offset = bpf_ntohl(ip->daddr) - range->base;
		entry = offset < range->size ? entry_at(range->start + offset) : 0;
		if (entry && total > range->mtu)
			return XDP_PASS;
	}
	if (!entry) {
		behind = destined_behind(ctx, AF_INET, &ip->daddr, total);
		if (behind)
			entry = behind->entry;
	}
	if (range || entry) {
		if (!is_intact_v4(ip))
			return drop(INNER_MALFORMED);
		if (ip->protocol == IPPROTO_ICMP && octet_at(ctx, ETH_HLEN + sizeof(*ip)) == ICMP_REDIRECT &&
		    total > sizeof(*ip))
			return drop(LINK_LOCAL);
	}
	if (!entry || ip->ttl <= 1)
		return XDP_PASS;
	return downlink(ctx, entry, total);
}

static __always_inline int receive_v6(struct xdp_md *ctx, __u32 frame)
{
	struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN;
	const volatile struct range *range;
	__u32 i, total, place, length = 0, entry = 0;
	const struct behind *behind;
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
		place = source_place_v6(&ip->saddr);
		if (!place)
			return XDP_PASS;
		return uplink(ctx, ETH_HLEN + sizeof(*ip) + sizeof(struct udphdr), length, place);
	}
	range = range_v6(prefix_of(&ip->daddr));
	if (range) {
		offset = prefix_of(&ip->daddr) - range->base;
		entry = offset < range->size ? entry_at(range->start + offset) : 0;
		if (entry && total > range->mtu)
			return XDP_PASS;
	}
	if (!entry) {
		behind = destined_behind(ctx, AF_INET6, ip->daddr.s6_addr32, total);
		if (behind)
			entry = behind->entry;
	}
	if (!entry || ip->hop_limit <= 1 || ip->nexthdr == NEXTHDR_HOP)
		return XDP_PASS;
	return downlink(ctx, entry, total);
}

/* Returns the action for a frame, or the program that must classify it (BY_). */
static __always_inline int receive(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	__u32 frame = end_of(ctx) - start_of(ctx);

	if ((void *)(ethernet + 1) > end_of(ctx) || frame > LONGEST || !is_whole(ctx))
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

SEC(PROGRAM)
int upf(struct xdp_md *ctx)
{
	int result = receive(ctx);

	/* Constant numbers: the kernel converts these calls to direct jumps. */
	if (result == BY_UPLINK_RULES)
		bpf_tail_call_static(ctx, &programs, UPLINK_RULES);
	if (result == BY_DOWNLINK_RULES)
		bpf_tail_call_static(ctx, &programs, DOWNLINK_RULES);
	return result < BY_RULES ? result : XDP_PASS;
}

/* Entry point for frames from upf_divide. */
SEC(PROGRAM_THERE)
int upf_there(struct xdp_md *ctx)
{
	int result = receive(ctx);

	if (result == BY_UPLINK_RULES)
		bpf_tail_call_static(ctx, &programs_there, UPLINK_RULES);
	if (result == BY_DOWNLINK_RULES)
		bpf_tail_call_static(ctx, &programs_there, DOWNLINK_RULES);
	return result < BY_RULES ? result : XDP_PASS;
}

/*
 * With slices on processors: redirects a frame to its user's processor, so that a flood takes no
 * other's time.
 */
SEC(PROGRAM)
int upf_divide(struct xdp_md *ctx)
{
	int worker, result;
	__u32 processor;

	if (!is_whole(ctx))
		return XDP_PASS;
	worker = owner_of_frame(ctx);
	if (worker >= 0) {
		processor = config.processors[(__u32)worker % WORKERS];
		if (processor != bpf_get_smp_processor_id())
			return bpf_redirect_map(&processors, processor, 0);
	}
	result = receive(ctx);
	if (result == BY_UPLINK_RULES)
		bpf_tail_call_static(ctx, &programs, UPLINK_RULES);
	if (result == BY_DOWNLINK_RULES)
		bpf_tail_call_static(ctx, &programs, DOWNLINK_RULES);
	return result < BY_RULES ? result : XDP_PASS;
}

/* The kernel provides its routes only to programs whose licence is compatible with its own. */
char licence[] SEC("license") = "Dual BSD/GPL";
