/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * The user plane in the kernel: what is usual of verdict.rs and pipeline.rs, for both directions, on every interface.
 *
 * Uplink, a G-PDU to one of our N3 addresses loses its tunnel headers and leaves by the kernel's routes. Downlink, a
 * packet to a UE gets them and leaves to the RAN node. A packet that is forwarded has its hop counted like a router's.
 * Whatever is unusual passes to the kernel unchanged and uncounted: options, fragments, errors to report, unknown
 * tunnels, packets that must wait, that are too big, or whose next hop is not known yet. User space or the kernel
 * finishes it. Where this program drops, so does the reference, for the same reason.
 *
 * The outer UDP checksum of what comes in is not looked at: the inner packet has its own.
 */
#include "packet.h"
#include "record.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct downlink);
} downlinks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entries);
} addresses SEC(".maps");

/* TEIDs that somebody else chose: their indexes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} foreign SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counted SEC(".maps");

const volatile struct config config = {};

#define READ(x) (*(const volatile typeof(x) *)&(x))

/* Loads are in order on x86; elsewhere an atomic operation with a result orders them. */
#if defined(__TARGET_ARCH_x86)
#define ORDERED(word) READ(word)
#else
#define ORDERED(word) __sync_fetch_and_or(&(word), 0)
#endif

static __always_inline struct counters *counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counted, &zero);
}

static __always_inline int drop(enum reason reason)
{
	struct counters *c = counters();

	if (c)
		c->drops[reason]++;
	return XDP_DROP;
}

/* rate.rs: Policer::allow. */
static __always_inline int conforms(struct state *state, __u64 cost, __u32 octets)
{
	__u64 now, span, tolerance;
	int i;

	if (cost == 0)
		return 1;
	if (cost == ~0ull)
		return 0;
	now = bpf_ktime_get_ns();
	span = octets * cost >> 16;
	tolerance = 3000 * cost >> 16;
	if (tolerance < 50000000)
		tolerance = 50000000;
	for (i = 0; i < 4; i++) {
		__u64 expected = READ(state->expected);
		__u64 start = expected > now ? expected : now;

		if (start - now > tolerance)
			return 0;
		if (__sync_val_compare_and_swap(&state->expected, expected, start + span) == expected)
			return 1;
	}
	/* others were faster each time: the packet conforms, and its time is added to theirs */
	__sync_fetch_and_add(&state->expected, span);
	return 1;
}

/* Counts a packet to its session; gives the packets before it. */
static __always_inline __u64 count(struct state *state, __u32 octets)
{
	__sync_fetch_and_add(&state->octets, octets);
	return __sync_fetch_and_add(&state->packets, 1);
}

static __always_inline const volatile struct range *range_v4(__u32 address)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < RANGES; i++) {
		if (i >= config.ranges_v4)
			break;
		if ((address & config.v4[i].mask) == config.v4[i].base)
			return &config.v4[i];
	}
	return 0;
}

static __always_inline const volatile struct range *range_v6(__u64 prefix)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < RANGES; i++) {
		if (i >= config.ranges_v6)
			break;
		if ((prefix & config.v6[i].mask) == config.v6[i].base)
			return &config.v6[i];
	}
	return 0;
}

/* Packets leave only by the interfaces that the program runs on: they are Ethernet, and meant for users' packets. */
static __always_inline int is_ours(__u32 interface)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < INTERFACES; i++) {
		if (i >= config.interface_count)
			break;
		if (interface == config.interfaces[i])
			return 1;
	}
	return 0;
}

static __always_inline int leave(struct xdp_md *ctx, const struct bpf_fib_lookup *hop, __be16 protocol)
{
	struct ethhdr *ethernet = start_of(ctx);

	if ((void *)(ethernet + 1) > end_of(ctx))
		return XDP_ABORTED;
	__builtin_memcpy(ethernet->h_dest, hop->dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, hop->smac, ETH_ALEN);
	ethernet->h_proto = protocol;
	return bpf_redirect(hop->ifindex, 0);
}

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

/* A consistent copy of what holds for a TEID; 0 if there is none or it is being changed. */
static __always_inline int find_uplink(__u32 teid, struct uplink *copy, struct uplink **found)
{
	__u32 index = teid >> 8;
	struct uplink *record = bpf_map_lookup_elem(&uplinks, &index);
	__u32 sequence;

	if (teid == 0)
		return 0;
	if (!record || READ(record->teid) != teid) {
		__u32 *elsewhere = bpf_map_lookup_elem(&foreign, &teid);

		if (!elsewhere)
			return 0;
		index = *elsewhere;
		record = bpf_map_lookup_elem(&uplinks, &index);
		if (!record)
			return 0;
	}
	sequence = ORDERED(record->sequence);
	copy->teid = READ(record->teid);
	copy->ipv4 = READ(record->ipv4);
	copy->flags = READ(record->flags);
	copy->prefix = READ(record->prefix);
	copy->flows = READ(record->flows);
	copy->cost = READ(record->cost);
	if (sequence & 1 || ORDERED(record->sequence) != sequence || copy->teid != teid)
		return 0;
	*found = record;
	return 1;
}

/* The GTP-U message of `length` octets at offset `at`. */
__noinline int uplink(struct xdp_md *ctx, __u32 at, __u32 length)
{
	struct bpf_fib_lookup hop = {};
	struct uplink rule = {}, *record = 0;
	struct counters *c;
	struct gtp *gtp;
	__u32 end, payload, teid, total, frame;
	int result;

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

	hop.tot_len = total;
	hop.ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &hop, sizeof(hop), 0) != BPF_FIB_LKUP_RET_SUCCESS || !is_ours(hop.ifindex))
		return XDP_PASS;
	if (!conforms(&record->state, rule.cost, total))
		return drop(RATE_EXCEEDED);
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
	if (hop.family == AF_INET) {
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

static __always_inline int find_downlink(__u32 position, struct downlink *copy, struct downlink **found)
{
	__u32 key = position / ENTRIES, index, entry, sequence;
	struct entries *entries = bpf_map_lookup_elem(&addresses, &key);
	struct downlink *record;

	if (!entries)
		return 0;
	entry = READ(entries->entry[position % ENTRIES]);
	if (entry == 0)
		return 0;
	index = entry >> 8;
	record = bpf_map_lookup_elem(&downlinks, &index);
	if (!record)
		return 0;
	sequence = ORDERED(record->sequence);
	copy->flags = READ(record->flags);
	copy->teid = READ(record->teid);
	copy->address[0] = READ(record->address[0]);
	copy->address[1] = READ(record->address[1]);
	copy->address[2] = READ(record->address[2]);
	copy->address[3] = READ(record->address[3]);
	copy->cost = READ(record->cost);
	if (sequence & 1 || ORDERED(record->sequence) != sequence)
		return 0;
	/* it was another's when the entry was read */
	if ((copy->flags >> GENERATION_SHIFT & 0xff) != (entry & 0xff))
		return 0;
	*found = record;
	return 1;
}

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
		container[5] = 0; /* DL PDU SESSION INFORMATION, TS 38.415 5.5.2.1 */
		container[6] = (rule->flags & DOWN_RQI ? 0x40 : 0) | qfi;
		container[7] = 0;
	}
	return 1;
}

static __always_inline int write_v4(struct xdp_md *ctx, const struct bpf_fib_lookup *hop, __u32 length, __u16 id)
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
	ip->saddr = hop->ipv4_src;
	ip->daddr = hop->ipv4_dst;
#pragma unroll
	for (i = 0; i < 10; i++)
		sum += words[i];
	ip->check = ~fold(sum);
	return 1;
}

static __always_inline int write_v6(struct xdp_md *ctx, const struct bpf_fib_lookup *hop, __u32 length)
{
	struct ipv6hdr *ip = start_of(ctx) + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	__u32 payload = length - sizeof(*ip);
	__u64 sum;
	__u16 check;
	int i;

	if ((void *)(udp + 1) > end_of(ctx))
		return 0;
	*(__be32 *)ip = bpf_htonl(6u << 28);
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = 64;
	__builtin_memcpy(&ip->saddr, hop->ipv6_src, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, hop->ipv6_dst, sizeof(ip->daddr));
	/* RFC 8200 8.1: with IPv6 there is a checksum */
	sum = sum_from(ctx, ETH_HLEN + sizeof(*ip));
	sum += bpf_htonl(payload);
	sum += bpf_htonl(IPPROTO_UDP);
#pragma unroll
	for (i = 0; i < 4; i++)
		sum += (__u64)hop->ipv6_src[i] + hop->ipv6_dst[i];
	check = ~fold(sum);
	ip = start_of(ctx) + ETH_HLEN;
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end_of(ctx))
		return 0;
	udp->check = check ? check : 0xffff;
	return 1;
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
	hop.tot_len = total + outer;
	hop.ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &hop, sizeof(hop), 0) != BPF_FIB_LKUP_RET_SUCCESS || !is_ours(hop.ifindex))
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
	tunnel = ETH_HLEN + (hop.family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	if (!write_tunnel(ctx, tunnel, &rule, total))
		return XDP_ABORTED;
	if (hop.family == AF_INET) {
		/* fragments on the way are told apart by it: different for the packets of a tunnel, and of most tunnels */
		if (!write_v4(ctx, &hop, total + outer, before + rule.teid * 0x9e37u))
			return XDP_ABORTED;
		return leave(ctx, &hop, bpf_htons(ETH_P_IP));
	}
	if (!write_v6(ctx, &hop, total + outer))
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
