/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * Address table: destinations that UEs must not reach, and permitted sources of G-PDUs.
 * src/engine/access/table.rs has the same layout. Only user space writes it.
 */
#pragma once

#include "packet.h"
#include "tables.h"

struct line {
	__u64 word[8];
};

/*
 * In lines: buckets of three addresses with their flags, one bit for each bucket, one bit for each
 * value of the first 16 bits of prefixes of a family, the prefixes, and their number.
 */
#define BUCKETS 8192
#define BUCKET_BITS 13
#define LINE_BITS 512
#define OCCUPIED BUCKETS
#define SHARED_V4 (OCCUPIED + BUCKETS / LINE_BITS)
#define SHARED_V6 (SHARED_V4 + (1 << 16) / LINE_BITS)
#define PREFIX (SHARED_V6 + (1 << 16) / LINE_BITS)
#define PREFIXES 64
#define COUNT (PREFIX + PREFIXES)
#define ACCESS_LINES (COUNT + 1)
#define SLOTS 3
#define PROBES 8

#define PROTECTED 1u
#define FROM_RAN 2u

/* Result for a found address: its slot number, from 1, above its flags. */
#define PLACE_SHIFT 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ACCESS_LINES);
	__type(key, __u32);
	__type(value, struct line);
} access SEC(".maps");

/* IPv4 addresses are mapped (RFC 4291 2.5.5.2). */
#define MAPPED (0xffffull << 32)

/* The key is random, so that no peer can choose addresses of one bucket. */
static __always_inline __u32 bucket_of(__u64 high, __u64 low)
{
	__u64 hash = (high * config.access_key[0] ^ low) * config.access_key[1];

	return (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9ull >> (64 - BUCKET_BITS);
}

static __always_inline int access_bit(__u32 first, __u32 bit)
{
	__u32 key = first + bit / LINE_BITS;
	struct line *line = bpf_map_lookup_elem(&access, &key);

	return line && READ(line->word[bit / 64 % 8]) >> (bit % 64) & 1;
}

static __always_inline __u32 slot_flags(const struct line *line, __u32 slot)
{
	return READ(line->word[6 + slot / 2]) >> (32 * (slot % 2));
}

/*
 * Returns the slot number and the flags of an address, or 0. Not inlined, so that the following
 * code is verified once.
 */
__noinline int find_address(__u64 high, __u64 low)
{
	__u32 bucket = bucket_of(high, low), probe, slot;

	for (probe = 0; probe < PROBES; probe++) {
		struct line *line = bpf_map_lookup_elem(&access, &bucket);

		if (!line)
			return 0;
#pragma unroll
		for (slot = 0; slot < SLOTS; slot++) {
			__u64 h = READ(line->word[2 * slot]);
			__u64 l = READ(line->word[2 * slot + 1]);

			if (h == high && l == low) {
				__u32 flags = slot_flags(line, slot);

				return flags ? (bucket * SLOTS + slot + 1) << PLACE_SHIFT | flags : 0;
			}
			if (!(h | l))
				return 0;
		}
		bucket = (bucket + 1) % BUCKETS;
	}
	return 0;
}

/* Returns the flags of the prefixes that contain the address. */
__noinline int find_prefix(__u64 high, __u64 low)
{
	__u64 v4 = !high && low >> 32 == 0xffff;
	__u32 key = COUNT, i, flags = 0;
	struct line *line = bpf_map_lookup_elem(&access, &key);
	__u64 count = line ? READ(line->word[0]) : 0;

	for (i = 0; i < PREFIXES; i++) {
		if (i >= count)
			break;
		key = PREFIX + i;
		line = bpf_map_lookup_elem(&access, &key);
		if (!line)
			break;
		if (line->word[5] == v4 && (high & line->word[2]) == line->word[0] && (low & line->word[3]) == line->word[1])
			flags |= line->word[4];
	}
	return flags;
}

static __always_inline int is_protected(__u64 high, __u64 low, __u32 family, __u32 first)
{
	if (access_bit(OCCUPIED, bucket_of(high, low)) && find_address(high, low) & PROTECTED)
		return 1;
	return access_bit(family, first) && find_prefix(high, low) & PROTECTED;
}

static __always_inline int is_protected_v4(__be32 address)
{
	__u32 to = bpf_ntohl(address);

	return is_protected(0, MAPPED | to, SHARED_V4, to >> 16);
}

static __always_inline int is_protected_words(__u64 high, __u64 low)
{
	if (!high && low >> 32 == 0xffff)
		return is_protected(high, low, SHARED_V4, low >> 16 & 0xffff);
	return is_protected(high, low, SHARED_V6, high >> 48);
}

static __always_inline __u64 low_of(const struct in6_addr *address)
{
	return (__u64)bpf_ntohl(address->s6_addr32[2]) << 32 | bpf_ntohl(address->s6_addr32[3]);
}

static __always_inline int is_protected_v6(const struct in6_addr *address)
{
	return is_protected_words(prefix_of(address), low_of(address));
}

/* Slot number for sources in a RAN prefix, and for entries that accept any known source. */
#define ANY_PLACE 0x7fffu

/* Returns the slot number of a G-PDU source, ANY_PLACE, or 0 if user space must decide. */
static __always_inline __u32 source_place(__u64 high, __u64 low, __u32 family, __u32 first)
{
	__u32 key = bucket_of(high, low), found;
	struct line *line = bpf_map_lookup_elem(&access, &key);

	/* Usually there are few addresses, each in the first slot of its bucket. */
	if (line && READ(line->word[1]) == low && READ(line->word[0]) == high)
		found = slot_flags(line, 0) | (key * SLOTS + 1) << PLACE_SHIFT;
	else
		found = find_address(high, low);
	if (found & FROM_RAN) {
		/* A RAN prefix is a valid source for every tunnel. */
		if (config.own_peer_only && access_bit(family, first) && find_prefix(high, low) & FROM_RAN)
			return ANY_PLACE;
		return found >> PLACE_SHIFT;
	}
	return access_bit(family, first) && find_prefix(high, low) & FROM_RAN ? ANY_PLACE : 0;
}

static __always_inline __u32 source_place_v4(__be32 address)
{
	__u32 from = bpf_ntohl(address);

	return source_place(0, MAPPED | from, SHARED_V4, from >> 16);
}

static __always_inline __u32 source_place_v6(const struct in6_addr *address)
{
	__u64 high = prefix_of(address);

	return source_place(high, low_of(address), SHARED_V6, high >> 48);
}
