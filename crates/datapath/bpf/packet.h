/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Headers, and reads at offsets that the verifier accepts. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define GTP_PORT 2152
#define GTP_G_PDU 255
#define GTP_PLAIN 8
#define GTP_WITH_CONTAINER 16
#define PDU_SESSION_CONTAINER 0x85
#define ICMP_REDIRECT 5
#define NEXTHDR_HOP 0

/* Longer frames are left to user space. */
#define LONGEST 4000

/*
 * Flags of a PDU Session Container (TS 38.415 5.5.2) above an offset of 16 bits: presence, QFI and
 * the bit above it (RQI), and whether it is that of uplink packets.
 */
#define CONTAINER (1 << 16)
#define CONTAINER_SHIFT 17
#define UPLINK_CONTAINER (1 << 24)

/*
 * With FRAGS, the program accepts frames in several buffers, which network drivers need at a large
 * MTU (Linux 5.18). It reads the first buffer only.
 */
#ifdef FRAGS
#define PROGRAM "xdp.frags"
#define PROGRAM_THERE "xdp.frags/cpumap"
#else
#define PROGRAM "xdp"
#define PROGRAM_THERE "xdp/cpumap"
#endif

/* TS 29.281 5.1 */
struct gtp {
	__u8 flags;
	__u8 kind;
	__be16 length;
	__be32 teid;
} __attribute__((packed));

static __always_inline void *start_of(const struct xdp_md *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *end_of(const struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Returns 1 if the frame has no further buffers. */
static __always_inline int is_whole(struct xdp_md *ctx)
{
#ifdef FRAGS
	return bpf_xdp_get_buff_len(ctx) == (__u64)(end_of(ctx) - start_of(ctx));
#else
	return ctx != 0;
#endif
}

/* Returns the octet at an offset, or -1 if it is beyond the frame. */
static __always_inline int octet_at(const struct xdp_md *ctx, __u32 at)
{
	const __u8 *octet;

	if (at >= LONGEST)
		return -1;
	octet = start_of(ctx) + at;
	if ((void *)(octet + 1) > end_of(ctx))
		return -1;
	return *octet;
}

/* Returns 1 if an IPv6 address has link scope (ndp.rs: is_link_scope). */
static __always_inline int is_link_scope(const struct in6_addr *address)
{
	const __u8 *octets = address->s6_addr;

	if (octets[0] == 0xff)
		return octets[1] == 0x02;
	if (octets[0] == 0xfe)
		return (octets[1] & 0xc0) == 0x80;
	return !(address->s6_addr32[0] | address->s6_addr32[1] | address->s6_addr32[2] | address->s6_addr32[3]);
}

static __always_inline __u64 prefix_of(const struct in6_addr *address)
{
	return (__u64)bpf_ntohl(address->s6_addr32[0]) << 32 | bpf_ntohl(address->s6_addr32[1]);
}

/* Decrements the TTL and updates the checksum (RFC 1624). */
static __always_inline void hop_v4(struct iphdr *ip)
{
	__u32 check = ip->check;

	check += bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Returns 1 if the checksum of an IPv4 header without options is right. */
static __always_inline int is_intact_v4(const struct iphdr *ip)
{
	const __u32 *words = (const void *)ip;
	__u64 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 5; i++)
		sum += words[i];
	return fold(sum) == 0xffff;
}

#define LONGEST_HEADER 15

/* Returns 1 if the checksum of an IPv4 header of some 32-bit words at an offset is right. */
__noinline int is_intact(struct xdp_md *ctx, __u32 at, __u32 words)
{
	__u64 sum = 0;
	__u32 i;

	if (at >= LONGEST)
		return 0;
	for (i = 0; i < LONGEST_HEADER; i++) {
		const __u32 *word = start_of(ctx) + at + 4 * i;

		if (i >= words)
			break;
		if ((void *)(word + 1) > end_of(ctx))
			return 0;
		sum += *word;
	}
	return fold(sum) == 0xffff;
}

#define CHUNK 32
#define CHUNKS 64

/* Returns the sum of the frame's octets from an offset to its end, at most CHUNK * CHUNKS. */
__noinline __u64 sum_from(struct xdp_md *ctx, __u32 at)
{
	__u64 sum = 0;
	__u32 i, j;

	for (i = 0; i < CHUNKS; i++) {
		__u32 from = at + i * CHUNK;
		const __u32 *words;

		if (from >= LONGEST)
			return sum;
		words = start_of(ctx) + from;
		if ((void *)words + CHUNK > end_of(ctx)) {
			for (j = 0; j < CHUNK; j += 2) {
				int high = octet_at(ctx, from + j);
				int low = octet_at(ctx, from + j + 1);

				if (high < 0)
					return sum;
				sum += bpf_htons((__u16)(high << 8 | (low < 0 ? 0 : low)));
			}
			return sum;
		}
#pragma unroll
		for (j = 0; j < CHUNK / 4; j++)
			sum += words[j];
	}
	return sum;
}
