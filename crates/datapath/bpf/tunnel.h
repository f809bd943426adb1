/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* The headers of a tunnel to the RAN. */
#pragma once

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
		container[5] = 0; /* DL PDU SESSION INFORMATION, TS 38.415 5.5.2.1 */
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
	ip->saddr = config.n3_v4[0];
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
#pragma unroll
	for (i = 0; i < 4; i++) {
		ip->saddr.s6_addr32[i] = config.n3_v6[0][i];
		ip->daddr.s6_addr32[i] = destination[i];
	}
	/* RFC 8200 8.1: with IPv6 there is a checksum */
	sum = sum_from(ctx, ETH_HLEN + sizeof(*ip));
	sum += bpf_htonl(payload);
	sum += bpf_htonl(IPPROTO_UDP);
#pragma unroll
	for (i = 0; i < 4; i++)
		sum += (__u64)config.n3_v6[0][i] + destination[i];
	check = ~fold(sum);
	ip = start_of(ctx) + ETH_HLEN;
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end_of(ctx))
		return 0;
	udp->check = check ? check : 0xffff;
	return 1;
}
