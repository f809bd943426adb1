/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Routes and next hops of sent packets. */
#pragma once

#include "tables.h"

/*
 * Next-hop cache of each processor, indexed by a hash of the address: a lookup in the kernel's
 * routes costs more than all other processing.
 */
#define HOPS 256
/* Lifetime of a cached next hop in jiffies: 0.1 to 1 s. */
#define BELIEVED 100

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct hop);
} hops SEC(".maps");

/*
 * Packets leave only through the interfaces that the program runs on: these are Ethernet, and
 * intended for user packets.
 */
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

/* Not inlined: the verifier would analyse all following code once for each interface. */
__noinline int find_module(struct xdp_md *ctx)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < INTERFACES; i++) {
		if (i >= config.interface_count)
			break;
		if (ctx->ingress_ifindex == config.interfaces[i])
			return config.module[i];
	}
	return 0;
}

/* Returns the module of the receiving interface. */
static __always_inline __u32 module_of(struct xdp_md *ctx)
{
	return config.modules > 1 ? find_module(ctx) & (ADDRESSES - 1) : 0;
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

static __always_inline int is_for(const struct hop *hop, const struct bpf_fib_lookup *route, __u32 ingress)
{
	return hop->family == route->family && hop->ingress == ingress && hop->address[0] == route->ipv6_dst[0] &&
	       hop->address[1] == route->ipv6_dst[1] && hop->address[2] == route->ipv6_dst[2] &&
	       hop->address[3] == route->ipv6_dst[3];
}

/*
 * Finds the next hop of a packet of `length` octets by the kernel's routes. Returns 0 if it leaves
 * through none of our interfaces, or the next hop is unknown. With `believe`, a cached next hop of
 * the destination is used. That is valid for packets whose source does not affect the route.
 */
static __always_inline int find_route(struct xdp_md *ctx, struct bpf_fib_lookup *route, __u32 length, int believe)
{
	/* The answer of the kernel overwrites the query. */
	__u32 a = route->ipv6_dst[0], b = route->ipv6_dst[1], c = route->ipv6_dst[2], d = route->ipv6_dst[3];
	__u32 ingress = ctx->ingress_ifindex, family = route->family;
	struct hop *hop = 0;
	__u64 now = 0;

	if (believe) {
		__u32 key = a ^ c ^ d;

		key ^= key >> 16;
		key = (key ^ key >> 8) % HOPS;
		hop = bpf_map_lookup_elem(&hops, &key);
		if (!hop)
			return 0;
		now = bpf_jiffies64();
		if (now < hop->until && length <= hop->mtu && is_for(hop, route, ingress)) {
			route->ifindex = hop->interface;
			__builtin_memcpy(route->smac, hop->source, ETH_ALEN);
			__builtin_memcpy(route->dmac, hop->destination, ETH_ALEN);
			return 1;
		}
	}
	route->tot_len = length;
	route->ifindex = ingress;
	if (bpf_fib_lookup(ctx, route, sizeof(*route), 0) != BPF_FIB_LKUP_RET_SUCCESS || !is_ours(route->ifindex))
		return 0;
	if (hop) {
		hop->address[0] = a;
		hop->address[1] = b;
		hop->address[2] = c;
		hop->address[3] = d;
		hop->family = family;
		hop->interface = route->ifindex;
		/*
		 * The MTU of the route. For kernels that do not return it: the length that was
		 * just permitted.
		 */
		hop->mtu = route->mtu_result;
		__builtin_memcpy(hop->source, route->smac, ETH_ALEN);
		__builtin_memcpy(hop->destination, route->dmac, ETH_ALEN);
		hop->ingress = ingress;
		hop->until = now + BELIEVED;
	}
	return 1;
}

/*
 * Replaces the destination by the configured next hop, if there is one: returns 1, and the source
 * does not affect the route. Returns 0 without a configured next hop, and -1 for destinations that
 * are not beyond it.
 */
static __always_inline int to_next_hop(struct xdp_md *ctx, struct bpf_fib_lookup *route)
{
	__u32 i, module = module_of(ctx);

	if (route->family == AF_INET) {
		__u32 first = bpf_ntohl(route->ipv4_dst) >> 24;

		if (!config.next_v4[module])
			return 0;
		if (first == 0 || first == 127 || first >= 224 || range_v4(bpf_ntohl(route->ipv4_dst)))
			return -1;
#pragma unroll
		for (i = 0; i < ADDRESSES; i++) {
			if (i < config.addresses_v4 && route->ipv4_dst == config.n3_v4[i])
				return -1;
		}
		route->ipv4_src = 0;
		route->ipv4_dst = config.next_v4[module];
	} else {
		__u32 first = bpf_ntohl(route->ipv6_dst[0]);

		if (!config.next_v6[module][0])
			return 0;
		/* Addresses in 2000::/3 and fc00::/7 are beyond it. */
		if ((first >> 29 != 1 && first >> 25 != 0xfc >> 1) ||
		    range_v6((__u64)first << 32 | bpf_ntohl(route->ipv6_dst[1])))
			return -1;
#pragma unroll
		for (i = 0; i < ADDRESSES; i++) {
			if (i < config.addresses_v6 && route->ipv6_dst[0] == config.n3_v6[i][0] &&
			    route->ipv6_dst[1] == config.n3_v6[i][1] && route->ipv6_dst[2] == config.n3_v6[i][2] &&
			    route->ipv6_dst[3] == config.n3_v6[i][3])
				return -1;
		}
#pragma unroll
		for (i = 0; i < 4; i++) {
			route->ipv6_src[i] = 0;
			route->ipv6_dst[i] = config.next_v6[module][i];
		}
	}
	route->tos = 0;
	route->l4_protocol = 0;
	return 1;
}

#define FAMILY_BITS 32

/* Returns the framed route that contains an address, or 0. */
static __always_inline const struct behind *find_behind(__u32 family, const __u32 *address)
{
	struct network key = {
		.length = FAMILY_BITS + (family == AF_INET ? 32 : 128),
		.family = family,
		.address = { address[0] },
	};

	if (family == AF_INET6) {
		key.address[1] = address[1];
		key.address[2] = address[2];
		key.address[3] = address[3];
	}
	return bpf_map_lookup_elem(&framed, &key);
}

/*
 * Returns the framed route of a packet's destination, if the kernel's routes also lead to the UEs.
 */
static __always_inline const struct behind *destined_behind(struct xdp_md *ctx, __u32 family, const __u32 *address,
							    __u32 total)
{
	const struct behind *behind = find_behind(family, address);
	struct bpf_fib_lookup route = {};
	int found;

	if (!behind)
		return 0;
	route.family = family;
	route.ipv6_dst[0] = address[0];
	if (family == AF_INET6) {
		route.ipv6_dst[1] = address[1];
		route.ipv6_dst[2] = address[2];
		route.ipv6_dst[3] = address[3];
	}
	route.ifindex = ctx->ingress_ifindex;
	found = bpf_fib_lookup(ctx, &route, sizeof(route), 0);
	/* The device of the UEs has no neighbours. */
	if ((found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH) || route.ifindex != config.tun)
		return 0;
	return total <= behind->mtu ? behind : 0;
}
