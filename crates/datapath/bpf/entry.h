/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* Layouts shared by user space and the program: src/engine/entry and src/drivers. */
#pragma once

#include <linux/types.h>

/* State that packets update: the policer word in ns, packets, octets. */
struct state {
	__u64 expected;
	__u64 packets;
	__u64 octets;
};

#define UP_FORWARD 1u
#define UP_GATE (1u << 1)
#define UP_IPV4 (1u << 2)
#define UP_IPV6 (1u << 3)
#define UP_OVERFLOW (1u << 4) /* a rule list applies: rules.h */
#define UP_LEAN (1u << 5) /* nothing is counted: src/engine/entry/lean.rs */
#define UP_WATCH_SHIFT 8 /* src/engine/entry: watched */
#define UP_PEER_SHIFT 16 /* 15 bits: required source of the packets (access.h) */
#define UP_PEER 0x7fffu
#define WATCH 0x3fu
#define ALL_FLOWS (~0ull)

/* Indexed by the TEID's index. `sequence` is odd while user space changes the entry. */
struct uplink {
	__u32 sequence;
	__u32 teid;
	__u32 ipv4; /* network byte order */
	__u32 flags;
	__u64 prefix; /* network byte order */
	__u64 flows;
	/*
	 * 2^-16 ns for an octet; 0 = no limit, all ones = nothing passes. With UP_OVERFLOW: the
	 * first cell of the rule list; 0 = user space classifies the packets.
	 */
	__u64 cost;
	struct state state;
};

#define ACTION 3u
#define ACTION_DROP 0u
#define ACTION_FORWARD 1u
#define DOWN_GATE (1u << 2)
#define DOWN_RQI (1u << 3)
#define DOWN_QFI (1u << 4)
#define DOWN_IPV4 (1u << 5)
#define DOWN_IPV6 (1u << 6)
#define DOWN_OVERFLOW (1u << 7)
#define QFI_SHIFT 8
#define FROM_UE_CONTAINER (1u << 14) /* the PDU Session Container is that of uplink packets; only in actions */
#define DOWN_LEAN (1u << 15)
#define GENERATION_SHIFT 16
#define DOWN_WATCH_SHIFT 24

/* Indexed by UE. */
struct downlink {
	__u32 sequence;
	__u32 flags;
	__u32 teid;
	__u32 reported; /* used by user space only */
	__u32 address[4]; /* network byte order; IPv4 in the first word */
	__u64 cost;
	struct state state;
};

/*
 * Element of rule lists (src/engine/flow_rules). An entry points to the first of a
 * chain of matches. The first match that fits a packet names an action. The action names meters
 * (URRs) and policers (QERs), which rules share. Matches and actions do not change while an entry
 * points to them.
 */
struct cell {
	__u64 word[8];
};

#define CELL 0xffffffu
#define LABEL 0xfffffu
#define IF_PROTOCOL (1u << 20)
#define IF_SOURCE_V4 (1u << 21)
#define IF_SOURCE_V6 (1u << 22)
#define IF_DESTINATION_V4 (1u << 23)
#define IF_DESTINATION_V6 (1u << 24)
#define IF_SOURCE_PORT (1u << 25)
#define IF_DESTINATION_PORT (1u << 26)
#define IF_SPI (1u << 27)
#define IF_LABEL (1u << 28)

struct match {
	__u32 next; /* cell; 0 = last match */
	__u32 action; /* CELL | prefix length of the destination << 24 */
	__u64 flows;
	__u64 source[2]; /* host byte order; IPv4 in the upper half of the first word */
	__u64 destination[2];
	__u32 conditions; /* IF_ | LABEL */
	__u8 protocol;
	__u8 traffic_class;
	__u8 traffic_mask;
	__u8 source_length;
	__u32 source_port; /* lowest << 16 | highest; or the SPI */
	__u32 destination_port;
};

#define METERS 4
#define RATES 2
#define RULE_OUTWARD (1u << 16) /* to the data network; otherwise into the tunnel */
#define RULE_UPLINK (1u << 17)
#define RULE_KEEPS (1u << 18) /* keep the PDU Session Container of the received packet */
#define RULE_FRAMED (1u << 19) /* the UE has framed routes; its index value is the first word of the address */

struct action {
	__u32 flags; /* those of a downlink entry without generation and watch; and RULE_ */
	__u32 teid;
	__u32 address[4]; /* network byte order */
	__u32 meter[METERS]; /* cells; 0 = end */
	__u32 policer[RATES]; /* cell * 8 + word */
	__u64 cost[RATES];
};

#define NO_QUOTA (~0ull)
#define METER_WATCH 0x3full
#define METER_TOLD (1ull << 32) /* the exhausted quota was reported */

/* Arrays over the direction: downlink, uplink. */
struct meter {
	__u64 packets[2];
	__u64 octets[2];
	__u64 quota[2];
	__u64 total; /* quota of both directions together */
	__u64 state;
};

struct policers {
	__u64 expected[8];
};

_Static_assert(sizeof(struct match) == 64, "a cell");
_Static_assert(sizeof(struct action) == 64, "a cell");
_Static_assert(sizeof(struct meter) == 64, "a cell");
_Static_assert(sizeof(struct uplink) == 64, "one cache line");
_Static_assert(sizeof(struct downlink) == 64, "one cache line");

/* Address index of UEs: index (24 bits) | generation (8 bits) of the downlink entry; 0 = no UE. */
#define ENTRIES 16
struct entries {
	__u32 entry[ENTRIES];
};

/* A pool: IPv4 addresses, or the upper 64 bits of IPv6 addresses, in host byte order. */
struct range {
	__u64 base;
	__u64 mask; /* of the pool */
	__u64 size; /* number of addresses in the array */
	__u32 start;
	__u32 mtu;
};

#define RANGES 8
#define ADDRESSES 8
#define INTERFACES 16
#define WORKERS 64

struct config {
	struct range v4[RANGES];
	struct range v6[RANGES];
	__u32 n3_v4[ADDRESSES]; /* network byte order */
	__u32 n3_v6[ADDRESSES][4];
	__u32 interfaces[INTERFACES]; /* interfaces that packets may leave through */
	__u32 module[INTERFACES]; /* module of each interface */
	__u32 ranges_v4;
	__u32 ranges_v6;
	__u32 addresses_v4;
	__u32 addresses_v6;
	__u32 interface_count;
	__u32 modules; /* 0 or 1 = all is module 0. The N3 address of module n is the n-th. */
	/* Next hop of the uplink packets of each module; 0 = route by destination. */
	__u32 next_v4[ADDRESSES];
	__u32 next_v6[ADDRESSES][4];
	/* Uplink packets go to the kernel's stack, which translates addresses and routes. */
	__u32 to_stack;
	/* Device that the kernel's routes for UEs use. */
	__u32 tun;
	/* G-PDUs must come from the peer of their tunnel. */
	__u32 own_peer_only;
	/* The UEs of some pool are isolated. */
	__u32 isolates;
	/* Key of the hash of the address table (access.h). */
	__u64 access_key[2];
	/* With slices on processors: the processor of each worker. */
	__u32 processors[WORKERS];
};

/*
 * A framed route: family (AF_) and address in network byte order. The prefix length includes the
 * bits of the family.
 */
struct network {
	__u32 length;
	__u32 family;
	__u32 address[4];
};

/* UE of a framed route, as in the address index, and its MTU. */
struct behind {
	__u32 entry;
	__u32 mtu;
};

/* A cached next hop. */
struct hop {
	__u64 until; /* in jiffies */
	__u32 address[4];
	__u32 family;
	__u32 ingress;
	__u32 interface;
	__u32 mtu;
	__u8 source[6];
	__u8 destination[6];
	__u32 unused;
};

/* In the order of DropReason in src/engine/counters.rs. */
enum reason {
	MALFORMED,
	FROM_UE,
	UNEXPECTED,
	EXTENSION_HEADER,
	UNKNOWN_TEID,
	UNKNOWN_UE,
	INNER_MALFORMED,
	SPOOFED,
	LINK_LOCAL,
	WRONG_FLOW,
	GATE_CLOSED,
	RATE_EXCEEDED,
	RULE,
	NO_TUNNEL,
	BUFFER_FULL,
	BUFFER_EXPIRED,
	ANSWER_LIMIT,
	N3_SEND,
	N6_SEND,
	NO_RULE,
	QUOTA_SPENT,
	RING_FULL,
	WORKER_DIED,
	PROTECTED_DESTINATION,
	UE_TO_UE,
	UNKNOWN_PEER,
	REASONS,
};

struct counters {
	__u64 uplink_packets;
	__u64 uplink_octets;
	__u64 downlink_packets;
	__u64 downlink_octets;
	__u64 drops[REASONS];
	/* Packets of marked entries: classified here, and passed to user space. */
	__u64 by_rules;
	__u64 rules_passed;
};
