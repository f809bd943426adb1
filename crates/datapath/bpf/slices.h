/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * Map from packets to workers (src/engine/worker_map.rs): the number of a worker for each TEID
 * index and for each position in the arrays of UE addresses. The including file must define
 * `config`.
 */
#pragma once

#include "packet.h"
#include "entry.h"

#define OWNERS 64
struct owners {
	__u8 worker[OWNERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct owners);
} tunnel_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct owners);
} address_owners SEC(".maps");

#define OWNER(map, at) \
	({ \
		__u32 key_ = (at) / OWNERS; \
		struct owners *owners_ = bpf_map_lookup_elem(&(map), &key_); \
		owners_ ? *(volatile __u8 *)&owners_->worker[(at) % OWNERS] : 0; \
	})

/* A foreign TEID selects an arbitrary worker: every worker handles every user correctly. */
static __always_inline __u32 owner_of_teid(__u32 teid)
{
	return OWNER(tunnel_owners, teid >> 8);
}

/*
 * Returns the worker of an address in a pool, or -1. The first worker handles addresses beyond the
 * arrays.
 */
static __always_inline int owner_of_v4(__u32 address)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < RANGES; i++) {
		__u32 offset;

		if (i >= config.ranges_v4)
			break;
		if ((address & config.v4[i].mask) != config.v4[i].base)
			continue;
		offset = address - (__u32)config.v4[i].base;
		return offset < config.v4[i].size ? OWNER(address_owners, config.v4[i].start + offset) : 0;
	}
	return -1;
}

static __always_inline int owner_of_v6(__u64 prefix)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < RANGES; i++) {
		__u64 offset;

		if (i >= config.ranges_v6)
			break;
		if ((prefix & config.v6[i].mask) != config.v6[i].base)
			continue;
		offset = prefix - config.v6[i].base;
		return offset < config.v6[i].size ? OWNER(address_owners, config.v6[i].start + (__u32)offset) : 0;
	}
	return -1;
}

/* Headers after the IP header of a G-PDU. */
struct tunnelled {
	struct udphdr udp;
	struct gtp gtp;
} __attribute__((packed));

static __always_inline int is_g_pdu(__u8 protocol, const struct tunnelled *behind)
{
	return protocol == IPPROTO_UDP && behind->udp.dest == bpf_htons(GTP_PORT) && behind->gtp.kind == GTP_G_PDU;
}
