//! Protection of RAN node identities.
//!
//! A node that is up keeps its identity, and a dead one loses it. The operator's list binds
//! identities to addresses. Attackers and operators' mistakes are RAN nodes at other loopback
//! addresses.

mod ports;
mod ran;

use ran::{
    Core, NG_SETUP_FAILURE, NG_SETUP_RESPONSE, RanNode, UPDATE_ACKNOWLEDGE, UPDATE_FAILURE, golden, with_gnb_id,
};
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a core with these lines of `[n2]`. Returns it with its directory of the log.
fn core(n2: &str) -> (Core, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let log = File::create(directory.path().join("log")).expect("a log");
    let mut core = Core::start(directory.path(), (n2, ""), log);
    core.wait();
    (core, directory)
}

fn log(directory: &tempfile::TempDir) -> String {
    fs::read_to_string(directory.path().join("log")).expect("a log")
}

#[test]
fn identity_of_a_live_node_is_not_taken_over() {
    let (core, directory) = core("");
    let mut first = RanNode::set_up(2, core.n2);
    let mut second = RanNode::connect(3, core.n2);
    let began = Instant::now();
    second.send(&golden("NGSetupRequest"));
    // The first node answers its heartbeat.
    while second.poll_received() == 0 {
        first.poll();
    }
    assert_eq!(second.answer(), NG_SETUP_FAILURE);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(first.request(&golden("RANConfigurationUpdate")), UPDATE_ACKNOWLEDGE, "it is what it was");
    assert_eq!((first.down, second.down), (None, None));
    assert_eq!(core.refused("identity_in_use"), 1.0);
    // Only its own address may open a further association.
    let mut further = RanNode::connect(3, core.n2);
    assert_eq!(further.request(&golden("RANConfigurationUpdate")), UPDATE_FAILURE);
    let mut further = RanNode::connect(2, core.n2);
    assert_eq!(further.request(&golden("RANConfigurationUpdate")), UPDATE_ACKNOWLEDGE);
    assert_eq!(core.refused("binding"), 1.0);
    // The node may not change to another identity.
    assert_eq!(first.request(&with_gnb_id("RANConfigurationUpdate", 9)), UPDATE_FAILURE);
    let log = log(&directory);
    for line in ["NG Setup refused", "reason=\"identity_in_use\"", "further association refused", "reason=\"binding\""]
    {
        assert!(log.contains(line), "{line}\n{log}");
    }
}

#[test]
fn identity_of_a_dead_node_is_taken_over_in_2s() {
    let (core, _directory) = core("");
    // From here on the node neither receives nor sends.
    let mut dead = RanNode::set_up(2, core.n2);
    let mut second = RanNode::connect(3, core.n2);
    let began = Instant::now();
    assert_eq!(second.request(&golden("NGSetupRequest")), NG_SETUP_RESPONSE);
    let waited = began.elapsed();
    assert!((1500..4000).contains(&waited.as_millis()), "{waited:?}");
    dead.wait_until("its end", |node| node.down.is_some());
    assert_eq!(core.metric("vireo_ran_nodes"), Some(1.0));
    // A restarted gNB has its own address: the core sends no heartbeat.
    let began = Instant::now();
    let _restarted = RanNode::set_up(3, core.n2);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    second.wait_until("its end", |node| node.down.is_some());
    assert_eq!(core.refused("identity_in_use"), 0.0);
}

#[test]
fn allow_list_binds_nodes_to_addresses() {
    let list = "[[n2.allow]]\naddresses = \"127.0.0.2\"\nplmn = \"99970\"\nnode-ids = [256, 258]\n\
                [[n2.allow]]\naddresses = \"127.0.0.4/30\"\nnode-ids = [258, 258]";
    let (core, directory) = core(list);
    let stranger = RanNode::connect(9, core.n2);
    let ended = |node: &RanNode| node.down.is_some();
    let mut stranger = stranger;
    stranger.wait_until("its end", ended);
    assert_eq!(core.refused("address"), 1.0);
    let mut node = RanNode::connect(2, core.n2);
    assert_eq!(node.request(&with_gnb_id("NGSetupRequest", 3)), NG_SETUP_FAILURE, "gNB 259");
    assert_eq!(core.refused("identity"), 1.0);
    assert_eq!(node.request(&with_gnb_id("NGSetupRequest", 2)), NG_SETUP_RESPONSE, "gNB 258");
    // The list permits this identity at another address too, including a further association.
    let mut further = RanNode::connect(7, core.n2);
    assert_eq!(further.request(&golden("RANConfigurationUpdate")), UPDATE_ACKNOWLEDGE);
    let log = log(&directory);
    assert!(log.contains("association refused peer=127.0.0.9:") && log.contains("reason=\"identity\""), "{log}");
}

#[test]
fn associations_are_limited_by_address_and_time() {
    let (core, directory) = core("max-associations-per-address = 3\nsetup-within = \"1s\"");
    let mut node = RanNode::set_up(2, core.n2);
    let mut idle: Vec<RanNode> = (0..2).map(|_| RanNode::connect(2, core.n2)).collect();
    let mut over = RanNode::connect(2, core.n2);
    over.wait_until("its end", |node| node.down.is_some());
    assert_eq!(core.refused("associations"), 1.0);
    let _elsewhere = RanNode::set_up_as(3, core.n2, 3);
    let began = Instant::now();
    while idle.iter().any(|node| node.down.is_none()) {
        idle.iter_mut().for_each(RanNode::poll);
        node.poll();
        assert!(began.elapsed() < Duration::from_secs(10), "they are up still");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!((core.refused("no_ng_setup"), node.down), (2.0, None));
    // There is room again.
    assert_eq!(RanNode::connect(2, core.n2).down, None);
    let log = log(&directory);
    assert!(log.contains("reason=\"no_ng_setup\"") && log.contains("reason=\"associations\""), "{log}");
}
