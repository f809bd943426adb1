/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * Sessions with more rules than one entry holds (src/flow_rules). The fast path for them is in
 * separate programs, which the first program reaches by a tail call. Packets to be buffered, and
 * packets with options or extension headers, are passed to user space.
 */
#pragma once

#include "access.h"
#include "packet.h"
#include "route.h"
#include "rules.h"
#include "tables.h"
#include "tunnel.h"

/* Numbers of the programs (src/drivers/xdp/mod.rs: PROGRAMS). */
#define UPLINK_RULES 0
#define DOWNLINK_RULES 1

/* Result beyond the actions of XDP: another program must classify the packet. */
#define BY_RULES 16
#define BY_UPLINK_RULES (BY_RULES + UPLINK_RULES)
#define BY_DOWNLINK_RULES (BY_RULES + DOWNLINK_RULES)

/* Findings of the first program. */
struct handed {
	__u32 index; /* of the entry */
	__u32 sequence; /* of the entry */
	__u32 list; /* first cell of the list */
	__u32 container;
	__u32 payload;
	__u32 end;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handed);
} handed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

/* Passes a packet of a marked entry to user space. */
static __always_inline int pass_on(void)
{
	struct counters *c = counters();

	if (c)
		c->rules_passed++;
	return XDP_PASS;
}

static __always_inline int hand(int result, __u32 index, __u32 sequence, __u64 list, __u32 container, __u32 payload,
				__u32 end)
{
	__u32 zero = 0;
	struct handed *to = bpf_map_lookup_elem(&handed, &zero);

	if (!list || !to)
		return pass_on();
	to->index = index;
	to->sequence = sequence;
	to->list = list;
	to->container = container;
	to->payload = payload;
	to->end = end;
	return result;
}

static __always_inline int decided(int result)
{
	struct counters *c = counters();

	if (c)
		c->by_rules++;
	return result;
}

static __always_inline int is_link_scope_word(const __u64 *address)
{
	__u32 first = address[0] >> 56, second = address[0] >> 48 & 0xff;

	if (first == 0xff)
		return second == 0x02;
	if (first == 0xfe)
		return (second & 0xc0) == 0x80;
	return !(address[0] | address[1]);
}

static __always_inline void towards(struct bpf_fib_lookup *hop, const struct flow *flow)
{
	hop->l4_protocol = flow->protocol;
	if (flow->version == 4) {
		hop->family = AF_INET;
		hop->tos = flow->traffic_class;
		hop->ipv4_src = bpf_htonl(flow->source[0] >> 32);
		hop->ipv4_dst = bpf_htonl(flow->destination[0] >> 32);
		return;
	}
	hop->family = AF_INET6;
	hop->ipv6_src[0] = bpf_htonl(flow->source[0] >> 32);
	hop->ipv6_src[1] = bpf_htonl(flow->source[0]);
	hop->ipv6_src[2] = bpf_htonl(flow->source[1] >> 32);
	hop->ipv6_src[3] = bpf_htonl(flow->source[1]);
	hop->ipv6_dst[0] = bpf_htonl(flow->destination[0] >> 32);
	hop->ipv6_dst[1] = bpf_htonl(flow->destination[0]);
	hop->ipv6_dst[2] = bpf_htonl(flow->destination[1] >> 32);
	hop->ipv6_dst[3] = bpf_htonl(flow->destination[1]);
}

/* Returns 1 if the source is in a framed route of the UE with this index value. */
static __always_inline int is_behind(const struct flow *flow, __u32 entry)
{
	__u32 address[4] = { bpf_htonl(flow->source[0] >> 32), bpf_htonl(flow->source[0]),
			     bpf_htonl(flow->source[1] >> 32), bpf_htonl(flow->source[1]) };
	const struct behind *behind = find_behind(flow->version == 4 ? AF_INET : AF_INET6, address);

	return behind && entry && behind->entry == entry;
}

#define MAY_LEAVE (-1)

/*
 * Copies an action. Returns 0 if the entry may point elsewhere by now, or earlier reads may be
 * outdated.
 */
static __always_inline int copy_action(struct action *copy, __u32 index, __u32 *sequence, __u32 expected)
{
	const struct action *action = cell_at(index);

	if (!action)
		return 0;
	*copy = *action;
	asm volatile("" ::: "memory");
	return ORDERED(*sequence) == expected;
}

/* Returns 1 if a packet comes from the UE's address. */
static __always_inline int is_own(const struct flow *flow, const struct uplink *record)
{
	__u32 flags = READ(record->flags);

	if (flow->version == 4)
		return flags & UP_IPV4 && flow->source[0] == (__u64)bpf_ntohl(READ(record->ipv4)) << 32;
	return flags & UP_IPV6 && flow->source[0] == bpf_be64_to_cpu(READ(record->prefix));
}

/* verdict.rs: outward. Returns an XDP action, or MAY_LEAVE. */
static __always_inline int outward(const struct flow *flow, int own, const struct action *action)
{
	if (!own && action->flags & RULE_FRAMED) {
		own = is_behind(flow, action->address[0]);
		/* User space decides with certainty. */
		if (!own)
			return pass_on();
	}
	if (flow->version == 4)
		return own ? MAY_LEAVE : decided(drop(SPOOFED));
	if (!own && !is_link_scope_word(flow->source))
		return decided(drop(SPOOFED));
	if (!own || is_link_scope_word(flow->destination))
		return pass_on();
	return MAY_LEAVE;
}

/* Returns 1 if no UE may send to the destination. */
static __always_inline int is_protected_flow(const struct flow *flow)
{
	if (flow->version == 4)
		return is_protected_v4(bpf_htonl(flow->destination[0] >> 32));
	return is_protected_words(flow->destination[0], flow->destination[1]);
}

/* Checks gate, action and meters. Returns MAY_LEAVE, or an XDP action. */
static __always_inline int admits(const struct action *action, __u32 total)
{
	int meters;

	if (!(action->flags & DOWN_GATE))
		return decided(drop(GATE_CLOSED));
	if ((action->flags & ACTION) == ACTION_DROP)
		return decided(drop(RULE));
	if ((action->flags & ACTION) != ACTION_FORWARD)
		return pass_on();
	meters = ask_meters(action, total);
	if (meters == METERS_SPENT)
		return decided(drop(QUOTA_SPENT));
	return meters == METERS_ALLOW ? MAY_LEAVE : pass_on();
}

/* Sets the tunnel of an action, for a packet that was received with this container. */
static __always_inline void tunnel_of(struct downlink *tunnel, const struct action *action, __u32 container)
{
	tunnel->flags = action->flags;
	tunnel->teid = action->teid;
	__builtin_memcpy(tunnel->address, action->address, sizeof(tunnel->address));
	if (action->flags & RULE_KEEPS && container & CONTAINER) {
		tunnel->flags |= DOWN_QFI | (container >> CONTAINER_SHIFT & 63) << QFI_SHIFT;
		if (container & UPLINK_CONTAINER)
			tunnel->flags |= FROM_UE_CONTAINER;
		else if (container >> CONTAINER_SHIFT & 64)
			tunnel->flags |= DOWN_RQI;
	}
}

/* Classifies a G-PDU of a marked tunnel (flow_rules: Tables::uplink_by_flows). */
static __always_inline int by_uplink_rules(struct xdp_md *ctx)
{
	struct bpf_fib_lookup hop = {};
	struct downlink tunnel = {};
	struct action action = {};
	struct flow flow = {};
	struct uplink *record;
	struct handed *from;
	__u32 zero = 0, index, payload, container, version;
	int total, found, result, believe, own;

	from = bpf_map_lookup_elem(&handed, &zero);
	if (!from)
		return XDP_PASS;
	payload = from->payload;
	container = from->container;
	index = from->index;
	record = bpf_map_lookup_elem(&uplinks, &index);
	if (!record || payload >= LONGEST)
		return pass_on();
	total = read_flow(ctx, payload, from->end, &flow);
	if (total == 0)
		return decided(drop(INNER_MALFORMED));
	if (total < 0 || total > LONGEST)
		return pass_on();
	own = is_own(&flow, record);
	found = find_rule(&flow, from->list, container);
	if (found < 0 || !copy_action(&action, found, &record->sequence, from->sequence))
		return pass_on();
	if (found == 0)
		return decided(drop(NO_RULE));
	/* The source is checked before the drop action, as for packets that leave. */
	if (action.flags & RULE_OUTWARD) {
		result = outward(&flow, own, &action);
		if (result != MAY_LEAVE)
			return result;
		if (is_protected_flow(&flow))
			return decided(drop(PROTECTED_DESTINATION));
		if (config.isolates && (flow.version == 4 ? range_v4(flow.destination[0] >> 32) != 0 :
							    range_v6(flow.destination[0]) != 0))
			return pass_on();
	}
	result = admits(&action, total);
	if (result != MAY_LEAVE)
		return result;
	if (action.flags & RULE_OUTWARD) {
		if (flow.hops <= 1)
			return pass_on();
		towards(&hop, &flow);
		if (!config.to_stack) {
			believe = to_next_hop(ctx, &hop);
			if (believe < 0 || !find_route(ctx, &hop, total, believe))
				return pass_on();
		}
	} else {
		tunnel_of(&tunnel, &action, container);
		if (!reach_tunnel(ctx, &hop, &tunnel, total))
			return pass_on();
	}
	if (!charge(&action, total))
		return decided(drop(RATE_EXCEEDED));
	if (action.flags & RULE_OUTWARD) {
		count(&record->state, total);
		version = flow.version == 4 ? AF_INET : AF_INET6;
		return decided(out_of_tunnel(ctx, &hop, version, payload, total));
	}
	return decided(into_tunnel(ctx, &hop, &tunnel, payload, total, count(&record->state, total),
				   action.flags & RULE_UPLINK));
}

/* Classifies a packet for the UE of a marked entry (flow_rules: Tables::downlink_by_flows). */
static __always_inline int by_downlink_rules(struct xdp_md *ctx)
{
	struct bpf_fib_lookup hop = {};
	struct downlink tunnel = {}, *record;
	struct action action = {};
	struct flow flow = {};
	struct handed *from;
	__u32 zero = 0, index;
	int total, found, result;

	from = bpf_map_lookup_elem(&handed, &zero);
	if (!from)
		return XDP_PASS;
	index = from->index;
	record = bpf_map_lookup_elem(&downlinks, &index);
	if (!record)
		return pass_on();
	total = read_flow(ctx, ETH_HLEN, from->end, &flow);
	if (total <= 0 || total > LONGEST)
		return pass_on();
	found = find_rule(&flow, from->list, 0);
	if (found < 0 || !copy_action(&action, found, &record->sequence, from->sequence))
		return pass_on();
	if (found == 0)
		return decided(drop(NO_RULE));
	result = admits(&action, total);
	if (result != MAY_LEAVE)
		return result;
	if (action.flags & RULE_OUTWARD)
		return pass_on();
	tunnel_of(&tunnel, &action, 0);
	if (!reach_tunnel(ctx, &hop, &tunnel, total))
		return pass_on();
	if (!charge(&action, total))
		return decided(drop(RATE_EXCEEDED));
	if (!hop_at(ctx, ETH_HLEN))
		return XDP_ABORTED;
	return decided(into_tunnel(ctx, &hop, &tunnel, ETH_HLEN, total, count(&record->state, total), 0));
}

SEC(PROGRAM)
int upf_uplink(struct xdp_md *ctx)
{
	return by_uplink_rules(ctx);
}

SEC(PROGRAM)
int upf_downlink(struct xdp_md *ctx)
{
	return by_downlink_rules(ctx);
}

/*
 * The same for the processors of slices: the kernel distinguishes programs by their attachment
 * point.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} programs_there SEC(".maps");

SEC(PROGRAM_THERE)
int upf_uplink_there(struct xdp_md *ctx)
{
	return by_uplink_rules(ctx);
}

SEC(PROGRAM_THERE)
int upf_downlink_there(struct xdp_md *ctx)
{
	return by_downlink_rules(ctx);
}
