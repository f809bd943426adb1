use super::*;
use crate::worker::tests::config as core;
use vireo_core::amf::context::{NasSecurity, Registration};
use vireo_store::records::{Change, LIFE, MemoryRecords, Name};
use vireo_types::Ltmsi;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Returns the record of a UE with these NAS COUNTs.
fn record(ltmsi: u32, counts: Option<(u32, u32)>) -> UeRecord {
    let mut ue = UeContext::new(Ltmsi::from_raw(ltmsi));
    ue.sequence = 9;
    if let Some((uplink, downlink)) = counts {
        ue.registration = Registration::Registered;
        let security = NasSecurity::fresh(1, [7; 32], IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2);
        ue.security = Some(NasSecurity { uplink, downlink, ..security });
    }
    let context = context::encode(&ue, Vec::new()).unwrap();
    UeRecord { owner: 1, step: 3, consumed: 70, context, ..UeRecord::default() }
}

/// The database that a core has left behind.
struct Bench {
    records: MemoryRecords,
    config: ContextDatabaseConfig,
}

impl Bench {
    fn new() -> Self {
        let config =
            ContextDatabaseConfig { records: RecordsConfig::for_redis("redis://127.0.0.1:1"), owner: 2, shared: false };
        Bench { records: MemoryRecords::new(LIFE), config }
    }

    fn commit(&mut self, id: u64, octets: &[u8]) {
        let name = Name { collection: "amf", id };
        self.records.change(&[(name, Change::Commit { expected: 0, octets })]).remove(0).unwrap();
    }

    fn load(&mut self, id: u64) -> Option<UeRecord> {
        let found = self.records.load(&[Name { collection: "amf", id }]).unwrap().pop().flatten();
        found.map(|found| UeRecord::decode(&found.octets).unwrap())
    }
}

#[test]
fn stored_ue_is_resumed_with_its_own_counts() {
    let mut bench = Bench::new();
    bench.commit(1, &record(1, Some((300, 5))).encode().unwrap());
    let mut store = bench.records.clone();
    let numbers = Resumption::list(&bench.config, &mut store).unwrap();
    let mut resumption = Resumption::new(&bench.config, numbers);
    let (claimed, done) = resumption.next(&mut store, |stored| resumed(stored, &core(), Instant(7)));
    assert!(done.is_ok() && resumption.is_done());
    let [(1, ue)] = &claimed[..] else { panic!("{claimed:?}") };
    assert!(ue.connection.is_none() && ue.reachability.expires.is_some());
    let stored = bench.load(1).unwrap();
    let mine = context::decode(&stored.context).unwrap();
    assert_eq!((stored.owner, stored.consumed, stored.step), (2, 0, 4), "the last life's steps over it are void");
    let security = mine.security.unwrap();
    assert_eq!((security.uplink, security.downlink), (300, 5), "each was stored before its effects left");
    assert!(mine.sequence > 9, "effects have new names");
}

#[test]
fn unusable_records_are_removed() {
    let mut bench = Bench::new();
    bench.commit(1, &record(1, None).encode().unwrap());
    bench.commit(2, &record(2, Some((1 << 24, 5))).encode().unwrap());
    bench.commit(3, &UeRecord { removed: true, ..UeRecord::default() }.encode().unwrap());
    bench.commit(4, b"x");
    let others = Name { collection: "smf", id: 1 };
    bench.records.change(&[(others, Change::Commit { expected: 0, octets: b"y" })]).remove(0).unwrap();
    let mut store = bench.records.clone();
    let numbers = Resumption::list(&bench.config, &mut store).unwrap();
    let mut resumption = Resumption::new(&bench.config, numbers);
    let (claimed, done) = resumption.next(&mut store, |stored| resumed(stored, &core(), Instant(7)));
    assert!(done.is_ok() && claimed.is_empty());
    assert_eq!((resumption.removed, resumption.damaged), (3, 1), "a UE that had gone is not one that was lost");
    assert!(store.list_ids("amf").unwrap().is_empty());
    assert_eq!(store.list_ids("smf").unwrap(), [1], "records of other functions stay");
}

#[test]
fn contexts_of_a_restarted_database_are_dropped() {
    let mut record = HolderRecord::acquire(Box::new(MemoryRecords::new(LIFE)), 1).unwrap();
    assert_eq!(reason(&record, 7, "first"), Some(""), "nothing shows what there is");
    (record.holder.mark, record.holder.incarnation) = (7, "first".into());
    assert_eq!(reason(&record, 7, "first"), None);
    assert!(reason(&record, 7, "second").unwrap().contains("may have lost commits"));
    assert!(reason(&record, 8, "first").unwrap().contains("configuration"));
}

#[test]
fn hash_differs_by_configuration() {
    let other = CoreConfig { amf_pointer: 9, ..core() };
    assert_eq!(configuration_hash(&core()), configuration_hash(&core()));
    assert_ne!(configuration_hash(&core()), configuration_hash(&other));
}
