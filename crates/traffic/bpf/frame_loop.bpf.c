/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * A load without a generator: frames circulate through a UPF and back.
 *
 *     ran ===== n3  UPF  n6 ===== dn
 *      ^--------------------------+      (uplink; downlink in the opposite direction)
 *
 * `from_n6` runs on `dn` and `from_n3` on `ran`. They count the frames from the UPF, turn each into
 * the next packet of a random session, and send it back to the input of the UPF. `sink` ends all
 * frames, for measurements of one part after another. `bare_n3` and `bare_n6` are an upper bound of
 * the speed of a UPF: they remove and add constant headers, and redirect.
 */
#include "packet.h"

#define OUTER (sizeof(struct iphdr) + sizeof(struct udphdr) + GTP_WITH_CONTAINER)
#define UPLINK (ETH_HLEN + OUTER + sizeof(struct iphdr))
#define DOWNLINK (ETH_HLEN + sizeof(struct iphdr))
#define TEID (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr) + 4)

/* src/frame_loop/mod.rs: Constants. */
struct constants {
	__u32 towards_n3; /* interface indexes */
	__u32 towards_n6;
	__u32 server;   /* network byte order */
	__u32 address;  /* UE of the first session */
	__u32 teid;     /* first session; the indexes of the others follow */
	__u32 sum_up;   /* sum of the inner headers without the UE's address */
	__u32 sum_down;
	__u8 uplink[80];   /* Ethernet, IP, UDP, GTP-U, inner IP */
	__u8 downlink[36]; /* Ethernet, inner IP */
};

const volatile struct constants constants = {};

/* src/frame_loop/mod.rs: Load. */
struct load {
	__u32 first; /* sessions */
	__u32 count; /* 0 = the frames end here */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} load SEC(".maps");

/* src/frame_loop/mod.rs: Generations; src/frame_loop/teids.rs: Teids. */
#define TOGETHER 64
struct generations {
	__u8 of[TOGETHER]; /* by session; 0 = that of the first session */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generations);
} generations SEC(".maps");

/* src/frame_loop/mod.rs: Processor. */
struct counted {
	__u64 uplink;
	__u64 downlink;
	__u64 random;
	__u64 others;
	__u64 ended; /* frames in flight when the load ended */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counted);
} counted SEC(".maps");

static __always_inline struct counted *state(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counted, &zero);
}

/* Returns the next session, or -1 at the end of the load. */
static __always_inline __s64 next(struct counted *c)
{
	__u32 zero = 0;
	const struct load *l = bpf_map_lookup_elem(&load, &zero);

	if (!l || !l->count)
		return -1;
	c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
	return l->first + ((c->random >> 32) * l->count >> 32);
}

static __always_inline void copy(__u8 *to, const volatile __u8 *from, int octets)
{
	int i;

#pragma unroll
	for (i = 0; i + 4 <= octets; i += 4)
		*(__u32 *)(to + i) = *(const volatile __u32 *)(from + i);
#pragma unroll
	for (i = octets & ~3; i < octets; i++)
		to[i] = from[i];
}

static __always_inline __u16 check_of(__u32 sum, __u32 address)
{
	sum += (address & 0xffff) + (address >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u32 teid_of(__u32 session)
{
	__u32 place = session / TOGETHER;
	const struct generations *some = bpf_map_lookup_elem(&generations, &place);
	__u32 first = constants.teid;
	__u8 own = some ? some->of[session % TOGETHER] : 0;

	return ((first >> 8) + session) << 8 | (own ? own : (first & 0xff));
}

/* Turns the frame into an uplink packet of the session, and sends it to the UPF. */
static __always_inline int to_n3(struct xdp_md *ctx, __s64 session)
{
	__u8 *frame = start_of(ctx);
	__u32 address = bpf_htonl(constants.address + session);
	struct iphdr *ip;

	if ((void *)(frame + UPLINK) > end_of(ctx))
		return XDP_ABORTED;
	copy(frame, constants.uplink, UPLINK);
	*(__be32 *)(frame + TEID) = bpf_htonl(teid_of(session));
	ip = (void *)(frame + ETH_HLEN + OUTER);
	ip->saddr = address;
	ip->check = check_of(constants.sum_up, address);
	return bpf_redirect(constants.towards_n3, 0);
}

/* Turns the frame into a downlink packet of the session, and sends it to the UPF. */
static __always_inline int to_n6(struct xdp_md *ctx, __s64 session)
{
	__u8 *frame = start_of(ctx);
	__u32 address = bpf_htonl(constants.address + session);
	struct iphdr *ip;

	if ((void *)(frame + DOWNLINK) > end_of(ctx))
		return XDP_ABORTED;
	copy(frame, constants.downlink, DOWNLINK);
	ip = (void *)(frame + ETH_HLEN);
	ip->daddr = address;
	ip->check = check_of(constants.sum_down, address);
	return bpf_redirect(constants.towards_n6, 0);
}

SEC("xdp")
int from_n6(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	struct iphdr *ip = (void *)(ethernet + 1);
	struct counted *c = state();
	__s64 session;

	if (!c || (void *)(ip + 1) > end_of(ctx) || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->daddr != constants.server || ip->protocol != IPPROTO_UDP) {
		if (c)
			c->others++;
		return XDP_PASS;
	}
	c->uplink++;
	session = next(c);
	if (session < 0) {
		c->ended++;
		return XDP_DROP;
	}
	if (bpf_xdp_adjust_head(ctx, -(int)OUTER))
		return XDP_ABORTED;
	return to_n3(ctx, session);
}

SEC("xdp")
int from_n3(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct gtp *gtp = (void *)(udp + 1);
	struct counted *c = state();
	__s64 session;
	int outer;

	if (!c || (void *)(gtp + 1) > end_of(ctx) || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(GTP_PORT) || gtp->kind != GTP_G_PDU) {
		if (c)
			c->others++;
		return XDP_PASS;
	}
	c->downlink++;
	session = next(c);
	if (session < 0) {
		c->ended++;
		return XDP_DROP;
	}
	outer = OUTER - (gtp->flags & 7 ? 0 : GTP_WITH_CONTAINER - GTP_PLAIN);
	if (bpf_xdp_adjust_head(ctx, outer))
		return XDP_ABORTED;
	return to_n6(ctx, session);
}

/* Substitute for a user plane: all frames end here. */
SEC("xdp")
int sink(struct xdp_md *ctx __attribute__((unused)))
{
	struct counted *c = state();

	if (c)
		c->others++;
	return XDP_DROP;
}

SEC("xdp")
int bare_n3(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct gtp *gtp = (void *)(udp + 1);

	if ((void *)(gtp + 1) > end_of(ctx) || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(GTP_PORT) || gtp->kind != GTP_G_PDU)
		return XDP_PASS;
	if (bpf_xdp_adjust_head(ctx, OUTER))
		return XDP_ABORTED;
	if (start_of(ctx) + ETH_HLEN > end_of(ctx))
		return XDP_ABORTED;
	copy(start_of(ctx), constants.downlink, ETH_HLEN);
	return bpf_redirect(constants.towards_n6, 0);
}

SEC("xdp")
int bare_n6(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	struct iphdr *ip = (void *)(ethernet + 1);

	if ((void *)(ip + 1) > end_of(ctx) || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->saddr != constants.server)
		return XDP_PASS;
	if (bpf_xdp_adjust_head(ctx, -(int)OUTER))
		return XDP_ABORTED;
	if (start_of(ctx) + ETH_HLEN + OUTER > end_of(ctx))
		return XDP_ABORTED;
	copy(start_of(ctx), constants.uplink, ETH_HLEN + OUTER);
	return bpf_redirect(constants.towards_n3, 0);
}

char licence[] SEC("license") = "Dual BSD/GPL";
