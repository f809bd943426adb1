/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause OR Apache-2.0 */
/*
 * Programs that select the worker of a packet: PACKET_FANOUT_EBPF of packet sockets,
 * SO_ATTACH_REUSEPORT_EBPF of UDP sockets, TUNSETSTEERINGEBPF of a TUN device. While a user
 * migrates, a packet may reach the previous worker, which handles it equally well.
 */
#include "packet.h"
#include "entry.h"

const volatile struct config config = {};

#include "slices.h"

/* For a frame, or a packet that the kernel routes to the TUN device: both have an IP header. */
SEC("socket")
int slice_of_packet(struct __sk_buff *skb)
{
	struct tunnelled behind = {};
	__u8 version = 0;
	int owner;

	if (bpf_skb_load_bytes_relative(skb, 0, &version, 1, BPF_HDR_START_NET))
		return 0;
	if (version >> 4 == 4) {
		struct iphdr ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
			return 0;
		owner = owner_of_v4(bpf_ntohl(ip.daddr));
		if (owner >= 0)
			return owner;
		/* Packets with options and fragments go through the sockets. */
		bpf_skb_load_bytes_relative(skb, sizeof(ip), &behind, sizeof(behind), BPF_HDR_START_NET);
		return is_g_pdu(ip.protocol, &behind) ? owner_of_teid(bpf_ntohl(behind.gtp.teid)) : 0;
	}
	if (version >> 4 == 6) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
			return 0;
		owner = owner_of_v6(prefix_of(&ip.daddr));
		if (owner >= 0)
			return owner;
		bpf_skb_load_bytes_relative(skb, sizeof(ip), &behind, sizeof(behind), BPF_HDR_START_NET);
		return is_g_pdu(ip.nexthdr, &behind) ? owner_of_teid(bpf_ntohl(behind.gtp.teid)) : 0;
	}
	return 0;
}

/* For a datagram of UDP port 2152, without its UDP header. */
SEC("socket")
int slice_of_datagram(struct __sk_buff *skb)
{
	struct gtp gtp;

	if (bpf_skb_load_bytes(skb, 0, &gtp, sizeof(gtp)) || gtp.kind != GTP_G_PDU)
		return 0;
	return owner_of_teid(bpf_ntohl(gtp.teid));
}

char licence[] SEC("license") = "Dual BSD/GPL";
