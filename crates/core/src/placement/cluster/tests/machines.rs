//! Machine labels in the controller: placement of replicas, and the death of a machine.

use super::*;

fn label(n: u16) -> MachineLabel {
    MachineLabel::try_from(format!("rack1-{n}")).expect("a label")
}

/// Creates a settled cluster with hosts on machines, by host ID.
fn on_machines(machines: &[u16]) -> Bench {
    let mut bench = Bench::new(machines.len() as u16, 1);
    label_hosts(&mut bench, machines);
    bench.settle();
    assert!(bench.controller.is_settled());
    bench
}

fn label_hosts(bench: &mut Bench, machines: &[u16]) {
    for (host, machine) in (0..).zip(machines) {
        assert!(bench.controller.set_machine(HostId(host), label(*machine)));
    }
}

/// Returns true if the hosts of each bucket are on different machines.
fn is_spread(bench: &Bench, machines: &[u16]) -> bool {
    (0..Bucket::COUNT).all(|bucket| {
        let hosts: Vec<HostId> = bench.map().buckets.owners(Bucket::new(bucket)).all().collect();
        let used: BTreeSet<u16> = hosts.iter().map(|host| machines[host.index()]).collect();
        used.len() == hosts.len()
    })
}

#[test]
fn labels_move_replicas_to_other_machines() {
    let machines = [0, 0, 1, 2];
    let plain = {
        let mut bench = Bench::new(4, 1);
        bench.settle();
        bench
    };
    assert!(!is_spread(&plain, &machines));
    let mut bench = on_machines(&machines);
    assert!(is_spread(&bench, &machines) && (0..4).all(|host| bench.owned(host) == plain.owned(host)));
    let epoch = bench.epoch();
    assert!(!bench.controller.set_machine(HostId(0), label(0)), "nothing new");
    assert!(!bench.controller.set_machine(HostId(9), label(0)), "no such host");
    bench.settle();
    assert_eq!(bench.epoch(), epoch);
}

#[test]
fn dead_machine_loses_no_bucket() {
    let machines = [0, 0, 1, 2];
    let mut bench = on_machines(&machines);
    let before = bench.map().clone();
    (0..2).for_each(|n| bench.controller.on_disconnect(host(n)));
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.epoch()), (vec![2, 3], before.epoch() + 1), "one map for both");
    for bucket in (0..Bucket::COUNT).map(Bucket::new) {
        let live: Vec<HostId> = before.buckets.owners(bucket).all().filter(|host| host.0 > 1).collect();
        assert_eq!(bench.map().buckets.owners(bucket).owner(), live.first().copied(), "{bucket:?}");
    }
    assert!(bench.map().lost.is_empty(), "no UE is lost");
    // Without labels some buckets had both hosts.
    let mut bench = Bench::new(4, 1);
    bench.settle();
    (0..2).for_each(|n| bench.controller.on_disconnect(host(n)));
    bench.pass(50);
    assert_eq!(bench.map().lost, [0, 1]);
}

#[test]
fn successor_has_machines_or_gets_them_again() {
    let machines = [0, 1, 0, 2];
    let before = on_machines(&machines);
    let record = before.controller.durable_state();
    assert_eq!(record.machines, before.controller.machines());
    assert_eq!(record.machines.len(), 4);
    let restored = Controller::restore(settings(4), record.clone(), before.now);
    assert_eq!(restored.machines(), record.machines);
    // Members do not know the machines of others: they report their own again.
    let from_member = DurableState::new(record.secrets, record.map.clone());
    let restored = Controller::restore(settings(4), from_member, before.now);
    assert_eq!(restored.machines(), []);
    let mut bench = Bench::from_controller(restored, before.now);
    label_hosts(&mut bench, &machines);
    bench.settle();
    assert!(bench.controller.is_settled() && is_spread(&bench, &machines));
    assert_eq!(bench.map().buckets.owners(Bucket::new(7)), before.map().buckets.owners(Bucket::new(7)));
}
