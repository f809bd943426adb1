/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/* What user space and the program share. src/record.rs and src/xdp/shared.rs have the same layouts. */
#pragma once

#include <linux/types.h>

/* Packets' state: the word of the rate algorithm in ns, packets, octets. */
struct state {
	__u64 expected;
	__u64 packets;
	__u64 octets;
};

#define UP_FORWARD 1u
#define UP_GATE (1u << 1)
#define UP_IPV4 (1u << 2)
#define UP_IPV6 (1u << 3)
#define UP_OVERFLOW (1u << 4) /* a list of rules says more: rules.h */
#define UP_LEAN (1u << 5) /* nothing is counted: src/record.rs */
#define UP_WATCH_SHIFT 8 /* src/record.rs: watched */
#define UP_PEER_SHIFT 16 /* 15 bits: where packets must come from (access.h) */
#define UP_PEER 0x7fffu
#define WATCH 0x3fu
#define ALL_FLOWS (~0ull)

/* By index of TEID. `sequence` is odd while user space changes the record. */
struct uplink {
	__u32 sequence;
	__u32 teid;
	__u32 ipv4; /* as on the wire */
	__u32 flags;
	__u64 prefix; /* as on the wire */
	__u64 flows;
	/* 2^-16 ns for an octet; 0 = no limit, all ones = nothing passes. With UP_OVERFLOW the first cell of the list instead;
	 * 0 = user space alone has it */
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
#define FROM_UE_CONTAINER (1u << 14) /* the PDU Session Container is one of uplink packets; in actions alone */
#define DOWN_LEAN (1u << 15)
#define GENERATION_SHIFT 16
#define DOWN_WATCH_SHIFT 24

/* By index of UE. */
struct downlink {
	__u32 sequence;
	__u32 flags;
	__u32 teid;
	__u32 reported; /* of user space alone */
	__u32 address[4]; /* as on the wire; IPv4 in the first */
	__u64 cost;
	struct state state;
};

/*
 * What lists of rules are made of (src/overflow/cells.rs, lists.rs). A record leads to the first of a chain of matches; the
 * first that a packet fits names an action, and this names meters (URRs) and policers (QERs), which rules share.
 * Matches and actions do not change while a record leads to them.
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
	__u32 next; /* cell; 0 = this is the last */
	__u32 action; /* CELL | bits of the destination's network << 24 */
	__u64 flows;
	__u64 source[2]; /* in host order; IPv4 in the upper half of the first */
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
#define RULE_OUTWARD (1u << 16) /* to the data network; else by the tunnel */
#define RULE_UPLINK (1u << 17)
#define RULE_KEEPS (1u << 18) /* the PDU Session Container that the packet came with */
#define RULE_FRAMED (1u << 19) /* there are networks behind the UE, whose entry is the first word of the address */

struct action {
	__u32 flags; /* as those of a downlink record, without generation and watch; and RULE_ */
	__u32 teid;
	__u32 address[4]; /* as on the wire */
	__u32 meter[METERS]; /* cells; 0 = no more */
	__u32 policer[RATES]; /* cell * 8 + word */
	__u64 cost[RATES];
};

#define NO_QUOTA (~0ull)
#define METER_WATCH 0x3full
#define METER_TOLD (1ull << 32) /* the owner knows that the quota is spent */

/* Of both directions: downlink, uplink. */
struct meter {
	__u64 packets[2];
	__u64 octets[2];
	__u64 quota[2];
	__u64 total; /* quota of both together */
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

/* UE addresses in arrays: index 24 bits | generation 8 bits of the downlink record, 0 = nobody's. */
#define ENTRIES 16
struct entries {
	__u32 entry[ENTRIES];
};

/* A pool: IPv4 addresses, or the upper 64 bits of IPv6 ones, in host order. */
struct range {
	__u64 base;
	__u64 mask; /* of the pool */
	__u64 size; /* of its array */
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
	__u32 n3_v4[ADDRESSES]; /* as on the wire */
	__u32 n3_v6[ADDRESSES][4];
	__u32 interfaces[INTERFACES]; /* where packets may leave */
	__u32 module[INTERFACES]; /* of which module each is */
	__u32 ranges_v4;
	__u32 ranges_v6;
	__u32 addresses_v4;
	__u32 addresses_v6;
	__u32 interface_count;
	__u32 modules; /* 0 or 1 = all is module 0. The N3 address of module n is the n-th. */
	/* Where uplink packets of a module go instead of by their destination; 0 = by their destination. */
	__u32 next_v4[ADDRESSES];
	__u32 next_v6[ADDRESSES][4];
	/* Uplink packets go to the kernel's stack, which translates addresses and routes. */
	__u32 to_stack;
	/* What the kernel's routes say is a UE's goes there. */
	__u32 tun;
	/* G-PDUs come from the peer of their own tunnel alone. */
	__u32 own_peer_only;
	/* There are UEs that do not reach each other. */
	__u32 isolates;
	/* Where slices have processors: that of each worker. */
	__u32 processors[WORKERS];
};

/* A network behind a UE, by family (AF_) and address as on the wire; the family's bits count. */
struct network {
	__u32 length;
	__u32 family;
	__u32 address[4];
};

/* Whose it is, as in entries, and the longest packet. */
struct behind {
	__u32 entry;
	__u32 mtu;
};

/* A next hop that was found a moment ago. */
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

/* The order of DropReason in src/counters.rs. */
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
	/* packets of marked records: decided on here, and left to user space */
	__u64 by_rules;
	__u64 rules_passed;
};
