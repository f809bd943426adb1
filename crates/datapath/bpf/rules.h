/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Rule lists: matching (filter.rs), meters and policers (flow_rules/state.rs). */
#pragma once

#include "packet.h"
#include "tables.h"

/* Maximum cells of a list. User space handles longer lists (flow_rules/lists.rs). */
#define LONGEST_LIST 64

#define NEXTHDR_ROUTING 43
#define NEXTHDR_FRAGMENT 44
#define NEXTHDR_ESP 50
#define NEXTHDR_DESTINATION 60

/*
 * Packet fields that filters compare. Host byte order, IPv4 addresses in the upper half of the
 * first word.
 */
struct flow {
	__u64 source[2];
	__u64 destination[2];
	__u32 version;
	__u32 protocol;
	__u32 traffic_class;
	__u32 label;
	__u32 start; /* the first four octets above IP */
	__u32 has_start; /* 0 in later fragments */
	__u32 hops;
	__u32 unused;
};

/* The meters allow the packet, the quota of one is exhausted, or user space must decide. */
#define METERS_ALLOW 0
#define METERS_SPENT 1
#define METERS_UNSURE 2

static __always_inline void *cell_at(__u32 index)
{
	return bpf_map_lookup_elem(&cells, &index);
}

/*
 * Parses the packet at `at`, which ends at `end` or earlier. Returns its length. 0 = not valid, -1
 * = user space must parse it (options, extension headers).
 */
__noinline int read_flow(struct xdp_md *ctx, __u32 at, __u32 end, struct flow *flow)
{
	__u32 total, above;
	__be32 *start;

	if (!flow || at >= LONGEST)
		return -1;
	if (at >= end)
		return 0;
	switch (octet_at(ctx, at) >> 4) {
	case 4: {
		struct iphdr *ip = start_of(ctx) + at;

		if (at + sizeof(*ip) > end)
			return 0;
		if ((void *)(ip + 1) > end_of(ctx))
			return -1;
		total = bpf_ntohs(ip->tot_len);
		if (ip->ihl < 5 || total < ip->ihl * 4 || at + total > end)
			return 0;
		if (ip->ihl != 5)
			return -1;
		if (!is_intact_v4(ip))
			return 0;
		flow->version = 4;
		flow->protocol = ip->protocol;
		flow->traffic_class = ip->tos;
		flow->hops = ip->ttl;
		flow->source[0] = (__u64)bpf_ntohl(ip->saddr) << 32;
		flow->destination[0] = (__u64)bpf_ntohl(ip->daddr) << 32;
		flow->has_start = !(ip->frag_off & bpf_htons(0x1fff));
		above = sizeof(*ip);
		break;
	}
	case 6: {
		struct ipv6hdr *ip = start_of(ctx) + at;
		__u32 word;

		if (at + sizeof(*ip) > end)
			return 0;
		if ((void *)(ip + 1) > end_of(ctx))
			return -1;
		total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		if (at + total > end)
			return 0;
		if (ip->nexthdr == NEXTHDR_HOP || ip->nexthdr == NEXTHDR_ROUTING || ip->nexthdr == NEXTHDR_FRAGMENT ||
		    ip->nexthdr == NEXTHDR_DESTINATION)
			return -1;
		word = bpf_ntohl(*(__be32 *)ip);
		flow->version = 6;
		flow->protocol = ip->nexthdr;
		flow->traffic_class = word >> 20 & 0xff;
		flow->label = word & LABEL;
		flow->hops = ip->hop_limit;
		flow->source[0] = prefix_of(&ip->saddr);
		flow->source[1] = (__u64)bpf_ntohl(ip->saddr.s6_addr32[2]) << 32 | bpf_ntohl(ip->saddr.s6_addr32[3]);
		flow->destination[0] = prefix_of(&ip->daddr);
		flow->destination[1] =
			(__u64)bpf_ntohl(ip->daddr.s6_addr32[2]) << 32 | bpf_ntohl(ip->daddr.s6_addr32[3]);
		flow->has_start = 1;
		above = sizeof(*ip);
		break;
	}
	default:
		return 0;
	}
	if (total < above + sizeof(*start))
		flow->has_start = 0;
	if (flow->has_start) {
		start = start_of(ctx) + at + above;
		if ((void *)(start + 1) > end_of(ctx))
			return -1;
		flow->start = bpf_ntohl(*start);
	}
	return total;
}

static __always_inline int is_in(const __u64 *address, const __u64 *network, __u32 length)
{
	if (length == 0)
		return 1;
	if (length <= 64)
		return (address[0] ^ network[0]) >> ((64 - length) & 63) == 0;
	return address[0] == network[0] && (address[1] ^ network[1]) >> ((128 - length) & 63) == 0;
}

static __always_inline int is_port(const struct flow *flow, __u32 port, __u32 range)
{
	switch (flow->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_DCCP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
		return flow->has_start && port >= range >> 16 && port <= (range & 0xffff);
	default:
		return 0;
	}
}

/* filter.rs: Filter::matches. */
__noinline int matches(const struct flow *flow, const struct cell *cell)
{
	const struct match *match = (const void *)cell;
	__u32 conditions, v4;

	if (!flow || !cell)
		return 0;
	conditions = match->conditions;
	v4 = flow->version == 4;
	if (conditions & IF_PROTOCOL && match->protocol != flow->protocol)
		return 0;
	if ((match->traffic_class ^ flow->traffic_class) & match->traffic_mask)
		return 0;
	if (conditions & (IF_SOURCE_V4 | IF_SOURCE_V6)) {
		if (!(conditions & (v4 ? IF_SOURCE_V4 : IF_SOURCE_V6)) ||
		    !is_in(flow->source, match->source, match->source_length))
			return 0;
	}
	if (conditions & (IF_DESTINATION_V4 | IF_DESTINATION_V6)) {
		if (!(conditions & (v4 ? IF_DESTINATION_V4 : IF_DESTINATION_V6)) ||
		    !is_in(flow->destination, match->destination, match->action >> 24))
			return 0;
	}
	if (conditions & IF_SOURCE_PORT && !is_port(flow, flow->start >> 16, match->source_port))
		return 0;
	if (conditions & IF_DESTINATION_PORT && !is_port(flow, flow->start & 0xffff, match->destination_port))
		return 0;
	if (conditions & IF_SPI &&
	    (flow->protocol != NEXTHDR_ESP || !flow->has_start || flow->start != match->source_port))
		return 0;
	return !(conditions & IF_LABEL) || (!v4 && flow->label == (conditions & LABEL));
}

/*
 * Returns the action of the first match in the list from `at` on, or 0. -1 = user space must
 * decide.
 */
__noinline int find_rule(const struct flow *flow, __u32 at, __u32 container)
{
	__u32 i;

	if (!flow)
		return -1;
	for (i = 0; i < LONGEST_LIST; i++) {
		const struct match *match = cell_at(at);

		if (!match)
			return -1;
		if (match->flows == ALL_FLOWS ||
		    (container & CONTAINER && match->flows >> (container >> CONTAINER_SHIFT & 63) & 1)) {
			if (matches(flow, (const void *)match))
				return match->action & CELL;
		}
		at = match->next;
		if (!at)
			return 0;
	}
	return -1;
}

static __always_inline int is_spent(const struct meter *meter, __u32 uplink)
{
	__u64 down = READ(meter->octets[0]), up = READ(meter->octets[1]);
	__u64 total = READ(meter->total), own = uplink ? READ(meter->quota[1]) : READ(meter->quota[0]);

	return (total != NO_QUOTA && down + up >= total) || (own != NO_QUOTA && (uplink ? up : down) >= own);
}

/* Checks whether the meters of an action allow a packet. Returns METERS_. */
__noinline int ask_meters(const struct action *action, __u32 octets)
{
	__u32 i, uplink, unsure = 0;

	if (!action)
		return METERS_UNSURE;
	uplink = action->flags & RULE_UPLINK;
	for (i = 0; i < METERS; i++) {
		__u32 cell = action->meter[i];
		const struct meter *meter;
		__u64 state, before;

		if (!cell)
			break;
		meter = cell_at(cell);
		if (!meter)
			return METERS_UNSURE;
		state = READ(meter->state);
		if (is_spent(meter, uplink))
			return state & METER_TOLD ? METERS_SPENT : METERS_UNSURE;
		before = uplink ? READ(meter->octets[1]) : READ(meter->octets[0]);
		if (state & METER_WATCH && (before ^ (before + octets)) >> (state & METER_WATCH))
			unsure = 1;
	}
	return unsure ? METERS_UNSURE : METERS_ALLOW;
}

/* Applies the policers of an action to a packet and counts it. Returns 0 if a rate is exceeded. */
__noinline int charge(const struct action *action, __u32 octets)
{
	__u32 i;

	if (!action || octets > LONGEST)
		return 0;
	for (i = 0; i < RATES; i++) {
		__u64 cost = action->cost[i];
		__u32 word = action->policer[i];
		struct policers *policers;

		if (!cost)
			continue;
		policers = cell_at(word >> 3);
		if (!policers || !conforms(&policers->expected[word & 7], cost, octets))
			return 0;
	}
	for (i = 0; i < METERS; i++) {
		__u32 cell = action->meter[i];
		struct meter *meter;

		if (!cell)
			break;
		meter = cell_at(cell);
		if (!meter)
			break;
		if (action->flags & RULE_UPLINK) {
			__sync_fetch_and_add(&meter->packets[1], 1);
			__sync_fetch_and_add(&meter->octets[1], octets);
		} else {
			__sync_fetch_and_add(&meter->packets[0], 1);
			__sync_fetch_and_add(&meter->octets[0], octets);
		}
	}
	return 1;
}
