/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Tables: written by user space, counted by packets; and their lookups. */
#pragma once

#include "packet.h"
#include "entry.h"

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

/* Indexes of foreign TEIDs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} foreign SEC(".maps");

/* Framed routes of UEs. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct network);
	__type(value, struct behind);
} framed SEC(".maps");

/* Cells of rule lists. Cell 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counted SEC(".maps");

const volatile struct config config = {};

#define READ(x) (*(const volatile typeof(x) *)&(x))

/* Loads are in order on x86. Elsewhere an atomic operation with a result orders them. */
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

/*
 * Returns the number of packets to UEs that this processor has forwarded. It distinguishes the
 * uncounted packets of a tunnel.
 */
static __always_inline __u64 forwarded(void)
{
	struct counters *c = counters();

	return c ? c->downlink_packets : 0;
}

static __always_inline int drop(enum reason reason)
{
	struct counters *c = counters();

	if (c)
		c->drops[reason]++;
	return XDP_DROP;
}

/* rate.rs: Policer::allow. */
static __always_inline int conforms(__u64 *word, __u64 cost, __u32 octets)
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
		__u64 expected = READ(*word);
		__u64 start = expected > now ? expected : now;

		if (start - now > tolerance)
			return 0;
		if (__sync_val_compare_and_swap(word, expected, start + span) == expected)
			return 1;
	}
	/*
	 * Other processors were faster each time: the packet conforms, and its time is added to
	 * theirs.
	 */
	__sync_fetch_and_add(word, span);
	return 1;
}

/*
 * Returns 1 if user space must be notified when this many octets are counted. User space then
 * counts the packet. Concurrent packets of other processors may hide that. It is then detected
 * after the next multiple.
 */
static __always_inline int is_watched(const struct state *state, __u32 watch, __u32 octets)
{
	__u64 before;

	watch &= WATCH;
	if (!watch)
		return 0;
	before = READ(state->octets);
	return (before ^ (before + octets)) >> watch != 0;
}

/* Counts a packet to its session. Returns the packets counted before it. */
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

/*
 * Copies the entry of a TEID consistently, and returns its location. Returns 0 if there is none or
 * it is being changed.
 */
static __always_inline int find_uplink(__u32 teid, struct uplink *copy, struct uplink **found, __u32 *at)
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
	*at = index;
	sequence = ORDERED(record->sequence);
	copy->sequence = sequence;
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

/* Returns the value at a position of the address index; 0 = no UE. */
static __always_inline __u32 entry_at(__u32 position)
{
	__u32 key = position / ENTRIES;
	struct entries *entries = bpf_map_lookup_elem(&addresses, &key);

	return entries ? READ(entries->entry[position % ENTRIES]) : 0;
}

static __always_inline int find_downlink(__u32 entry, struct downlink *copy, struct downlink **found)
{
	__u32 index = entry >> 8, sequence;
	struct downlink *record;

	if (entry == 0)
		return 0;
	record = bpf_map_lookup_elem(&downlinks, &index);
	if (!record)
		return 0;
	sequence = ORDERED(record->sequence);
	copy->sequence = sequence;
	copy->flags = READ(record->flags);
	copy->teid = READ(record->teid);
	copy->address[0] = READ(record->address[0]);
	copy->address[1] = READ(record->address[1]);
	copy->address[2] = READ(record->address[2]);
	copy->address[3] = READ(record->address[3]);
	copy->cost = READ(record->cost);
	if (sequence & 1 || ORDERED(record->sequence) != sequence)
		return 0;
	/* The entry belonged to another UE when the index was read. */
	if ((copy->flags >> GENERATION_SHIFT & 0xff) != (entry & 0xff))
		return 0;
	*found = record;
	return 1;
}
