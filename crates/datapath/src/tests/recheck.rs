//! Tests of changes between the first program and its tail-call target.
//!
//! An entry and its list may change in between. The findings of the first program are valid only
//! while the sequence word of the entry is the same. These tests run the second program alone, with
//! findings that the first one passed on at an earlier time.

use super::packets::packet;
use super::table::{FLOW, UDP, g_pdu, rules};
use super::*;
use crate::{FlowRule, Marking, Quota, SessionFlows, Source, Target};
use aya::maps::PerCpuValues;
use vireo_wire::gtpu::PduSession;

/// `struct handed` of `bpf/flow_rules.h`.
type Findings = [u32; 6];
const SEQUENCE: usize = 1;
const LIST: usize = 2;

const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// Two sessions with flow rules.
const FIRST: u8 = 0;
const SECOND: u8 = 1;

/// Returns one rule without filters for each direction: uplink to the data network, downlink into
/// this tunnel.
fn flows(n: u8, from: Teid, tunnel: u32) -> SessionFlows {
    let rule = |pdr, source, target| FlowRule {
        pdr,
        source,
        uplink: source != Source::DataNetwork,
        flows: ALL_FLOWS,
        filters: vec![],
        gate_open: true,
        target,
        rates: vec![],
        meters: vec![1],
    };
    let marking = Marking::Set(PduSession::Downlink { qfi: n + 1, rqi: false });
    let into = Target::Tunnel { tunnel: Tunnel { teid: Teid(tunnel), address: GNB[0] }, marking };
    let rules = vec![rule(1, Source::Tunnel(from), Target::DataNetwork), rule(2, Source::DataNetwork, into)];
    SessionFlows { rules, meters: vec![(1, Quota::default())], framed: vec![] }
}

fn uplink_frame(b: &Bench, n: u8) -> Vec<u8> {
    let inner = packet(ue(n).ipv4.expect("one").into(), SERVER[0], UDP, 64, b"up");
    let datagram = g_pdu(b.teids[usize::from(n)], FLOW, &inner);
    frame(mac(3, 9), mac(3, 1), &packets::tunnelled(GNB[0], UPF[0], &datagram))
}

fn downlink_frame(n: u8) -> Vec<u8> {
    frame(mac(6, 7), mac(6, 1), &packet(SERVER[0], ue(n).ipv4.expect("one").into(), UDP, 64, b"down"))
}

impl Bench {
    /// Returns the findings that the first program passes on for this frame, which is forwarded.
    fn findings_of(&mut self, frame: &[u8]) -> Findings {
        self.set_findings([0; 6]);
        assert_eq!(self.run(frame).0, REDIRECT);
        let values = self.findings_map().get(&0, 0).expect("read");
        *values.iter().find(|handed| handed[LIST] != 0).expect("it went on to the other program")
    }

    fn findings_map(&mut self) -> PerCpuArray<&mut MapData, Findings> {
        PerCpuArray::try_from(self.xdp.bpf.map_mut("handed").expect("there")).expect("one for each processor")
    }

    fn set_findings(&mut self, handed: Findings) {
        let processors = aya::util::nr_cpus().expect("known");
        let values = PerCpuValues::try_from(vec![handed; processors]).expect("for each");
        self.findings_map().set(0, values, 0).expect("written");
    }

    /// Runs the second program over a frame with these findings of the first one.
    fn run_second(&mut self, program: &str, handed: Findings, frame: &[u8]) -> (u32, Vec<u8>) {
        self.set_findings(handed);
        let mut out = vec![0; frame.len() + 256];
        let program = crate::drivers::xdp::program(&mut self.xdp.bpf, program).expect("a program");
        let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
        let result = program.test_run(options).expect("it runs");
        out.truncate(result.data_size_out as usize);
        (result.return_value, out)
    }

    /// Checks that the frame is passed to user space: unchanged, counted as such and in no other
    /// counter.
    fn is_left(&mut self, program: &str, handed: Findings, frame: &[u8], reason: &str) {
        let counted = |b: &Bench| {
            let metered = [FIRST, SECOND].map(|n| b.behind.tables.metered(n.into(), 1));
            (metered, b.counted(), b.xdp.counters().flow_packets().decided)
        };
        let before = (counted(self), self.xdp.counters().flow_packets().punted);
        assert_eq!(self.run_second(program, handed, frame), (PASS, frame.to_vec()), "{reason}");
        assert_eq!((counted(self), self.xdp.counters().flow_packets().punted), (before.0, before.1 + 1), "{reason}");
    }

    /// Sets rules of a session in the program's tables, without settling them.
    fn rewrite(&mut self, n: u8, flows: Option<SessionFlows>) {
        let (teid, id) = (self.teids[usize::from(n)], self.downlinks[usize::from(n)]);
        self.behind.tables.set_flows(n.into(), flows, &[teid], &[id], &mut Default::default());
    }
}

fn bench() -> Bench {
    let mut b = Bench::new(&rules()[..2]).expect("loaded");
    let from = b.teids[usize::from(FIRST)];
    b.rewrite(FIRST, Some(flows(FIRST, from, 0xa1)));
    b.behind.tables.settle();
    b
}

#[test]
fn entry_changed_on_the_way_is_punted() {
    in_namespace(|| {
        let mut b = bench();
        let from = b.teids[usize::from(FIRST)];
        let frames = [("upf_uplink", uplink_frame(&b, FIRST)), ("upf_downlink", downlink_frame(FIRST))];
        for (program, frame) in &frames {
            let early = b.findings_of(frame);
            assert_eq!(b.run_second(program, early, frame).0, REDIRECT, "nothing has changed: {program}");
            b.rewrite(FIRST, Some(flows(FIRST, from, 0xa2)));
            b.is_left(program, early, frame, "it is being changed");
            assert_eq!(b.run(frame).0, PASS, "the first program sees it too");
            b.behind.tables.settle();
            b.is_left(program, early, frame, "it has been changed");
            let late = b.findings_of(frame);
            assert!(late[SEQUENCE] != early[SEQUENCE] && late[SEQUENCE].is_multiple_of(2), "{early:?} {late:?}");
            let (action, out) = b.run_second(program, late, frame);
            assert_eq!(action, REDIRECT);
            assert!(*program == "upf_uplink" || out[46..50] == [0, 0, 0, 0xa2], "{out:02x?}");
            // The session has no flow rules.
            b.rewrite(FIRST, None);
            b.behind.tables.settle();
            b.is_left(program, late, frame, "it stands alone");
            b.rewrite(FIRST, Some(flows(FIRST, from, 0xa1)));
            b.behind.tables.settle();
        }
    });
}

#[test]
fn reused_rule_list_decides_nothing() {
    in_namespace(|| {
        let mut b = bench();
        let (first, second) = (b.teids[usize::from(FIRST)], b.teids[usize::from(SECOND)]);
        let frame = downlink_frame(FIRST);
        let early = b.findings_of(&frame);
        b.rewrite(FIRST, None);
        b.behind.tables.settle();
        // The cells are freed, and another session then uses them.
        let taken = (0..100).any(|_| {
            b.behind.tables.maintain_cells();
            b.rewrite(SECOND, None);
            b.behind.tables.maintain_cells();
            b.rewrite(SECOND, Some(flows(SECOND, second, 0xb1)));
            b.behind.tables.settle();
            b.findings_of(&downlink_frame(SECOND))[LIST] == early[LIST]
        });
        assert!(taken, "cells are used again");
        b.is_left("upf_downlink", early, &frame, "the list is another's");
        // Only the sequence word protects: with the current one, the packet would go to the other
        // session's tunnel.
        b.rewrite(FIRST, Some(flows(FIRST, first, 0xa1)));
        b.behind.tables.settle();
        let mut mixed = b.findings_of(&frame);
        mixed[LIST] = early[LIST];
        let (action, out) = b.run_second("upf_downlink", mixed, &frame);
        assert_eq!((action, &out[46..50]), (REDIRECT, &[0, 0, 0, 0xb1][..]));
    });
}
