/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Worker of a frame as XDP receives it, and the processors that frames can be redirected to. */
#pragma once

#include "packet.h"
#include "slices.h"
#include "tables.h"

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} processors SEC(".maps");

/*
 * Returns -1 if the frame belongs to no user. Not inlined: the verifier must not combine its states
 * with those of the program.
 */
__noinline int owner_of_frame(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = start_of(ctx);
	struct tunnelled *behind;
	int owner;

	if ((void *)(ethernet + 1) > end_of(ctx))
		return -1;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end_of(ctx) || ip->ihl != 5)
			return -1;
		owner = owner_of_v4(bpf_ntohl(ip->daddr));
		if (owner >= 0)
			return owner;
		behind = (void *)(ip + 1);
		if ((void *)(behind + 1) > end_of(ctx) || ip->frag_off & bpf_htons(0x3fff))
			return -1;
		return is_g_pdu(ip->protocol, behind) ? (int)owner_of_teid(bpf_ntohl(behind->gtp.teid)) : -1;
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);

		if ((void *)(ip + 1) > end_of(ctx))
			return -1;
		owner = owner_of_v6(prefix_of(&ip->daddr));
		if (owner >= 0)
			return owner;
		behind = (void *)(ip + 1);
		if ((void *)(behind + 1) > end_of(ctx))
			return -1;
		return is_g_pdu(ip->nexthdr, behind) ? (int)owner_of_teid(bpf_ntohl(behind->gtp.teid)) : -1;
	}
	return -1;
}
