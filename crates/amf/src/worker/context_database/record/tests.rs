//! Tests of UE records in each format and update mode.

use super::*;
use crate::worker::context_database::{BucketClaim, ContextDatabase, DatabaseRef, name};
use std::sync::{Arc, Mutex};
use vireo_core::amf::context;
use vireo_core::amf::context::{HandoverSmfStage, HandoverSmfState, KeySet, NasSecurity};
use vireo_core::config::{StateChange, StateFormat, StateScope};
use vireo_core::sba::{N1N2TransferResult, PiggybackedSmContext, SmfRequest};
use vireo_ops::state::RecordsConfig;
use vireo_ops::ue_record::{PendingSmfRequest, RecoveryLog, stored_part};
use vireo_store::records::{LIFE, MemoryRecords, Name, Operations, RecordError, RecordStore};
use vireo_types::{Bucket, Dialect, Instant, Ltmsi};

const FORMATS: [StateFormat; 3] = [StateFormat::Binary, StateFormat::Json, StateFormat::Protobuf];
const CHANGES: [StateChange; 3] = [StateChange::Replace, StateChange::Update, StateChange::DeleteCreate];
const SCOPES: [StateScope; 2] = [StateScope::Function, StateScope::AmfSmf];

/// Writes: the names of the parts (none for a whole), and true if other parts stay.
type Written = Arc<Mutex<Vec<(Vec<String>, bool)>>>;

/// Records that log the writes.
#[derive(Clone)]
struct LoggedRecords(MemoryRecords, Written);

impl RecordStore for LoggedRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.0.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        for (_, change) in changes {
            let (parts, stay) = match change {
                Change::Update { parts, .. } => (*parts, true),
                Change::Replace { parts, .. } => (*parts, false),
                Change::Commit { .. } => (&[][..], false),
                other => panic!("{other:?}"),
            };
            let names = parts.iter().map(|part| part.name.to_owned()).collect();
            self.1.lock().unwrap().push((names, stay));
        }
        self.0.change(changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.0.list_ids(collection)
    }

    fn operations(&self) -> Operations {
        self.0.operations()
    }
}

fn config(format: StateFormat, change: StateChange, scope: StateScope, owner: u64) -> ContextDatabaseConfig {
    let records = RecordsConfig { format, change, scope, ..RecordsConfig::for_redis("redis://127.0.0.1:1") };
    ContextDatabaseConfig { records, owner, shared: true }
}

fn ltmsi() -> Ltmsi {
    Ltmsi::new(Bucket::new(4), 1)
}

fn id() -> u64 {
    DatabaseRef::fresh(ltmsi(), 1, 7).id
}

fn context(change: impl FnOnce(&mut UeContext)) -> Vec<u8> {
    let mut ue = UeContext::new(ltmsi());
    ue.identity.supi = Some("999700000000001".parse().unwrap());
    ue.radio_capability = (0..200).collect();
    let kamf = std::array::from_fn(|n| n as u8 * 7);
    ue.security = Some(NasSecurity {
        key_set: KeySet::new(Dialect::Nr, 1),
        kamf,
        knas_int: [1; 16],
        knas_enc: [2; 16],
        integrity: 2,
        ciphering: 1,
        uplink: 5,
        downlink: u32::MAX,
        next_hop: None,
        derives_keys: false,
        agreed_at: Instant::default(),
    });
    change(&mut ue);
    context::encode(&ue, Vec::new()).unwrap()
}

/// Returns a UE with every field of a record.
fn ue() -> UeRecord {
    let mut recovery = RecoveryLog::default();
    recovery.add_outbox(Instant(u64::MAX), &[0, 255, 17], true);
    let sm_context = Some(PiggybackedSmContext { version: 3, octets: (0..=255).collect() });
    recovery.add_request(PendingSmfRequest {
        key: u64::MAX,
        number: 1,
        request: SmfRequest::Release { reference: "x".into() },
        sm_context,
    });
    recovery.add_transfer(9, N1N2TransferResult::Attempting);
    let (deadline, context) = (Some(Instant(77)), context(|_| {}));
    UeRecord { owner: u64::MAX, step: 2, consumed: 7, deadline, pin: 4, recovery, context, ..UeRecord::default() }
}

/// Returns the same UE without knowledge of the record.
fn plain(stored: &UeRecord) -> UeRecord {
    UeRecord { known: RecordBase::default(), ..stored.clone() }
}

fn each() -> impl Iterator<Item = (StateFormat, StateChange, StateScope)> {
    let pairs = FORMATS.into_iter().flat_map(|format| CHANGES.map(|change| (format, change)));
    pairs.flat_map(|(format, change)| SCOPES.map(|scope| (format, change, scope)))
}

/// Commits over the present record and reads it again.
fn commit_and_read(database: &mut ContextDatabase, stored: &UeRecord) -> UeRecord {
    let version = database.read(id()).unwrap().map_or(0, |(version, _)| version);
    database.commit((id(), version), stored.clone()).unwrap();
    let (next, there) = database.read(id()).unwrap().expect("a record");
    assert_eq!(next, version + 1);
    there
}

#[test]
fn ue_roundtrip_is_exact_in_every_format() {
    for (format, change, scope) in each() {
        let case = format!("{format:?} {change:?} {scope:?}");
        let records = MemoryRecords::new(LIFE);
        let mut database = ContextDatabase::over(config(format, change, scope, u64::MAX), &records);
        let first = ue();
        let there = commit_and_read(&mut database, &first);
        assert_eq!(plain(&there), first, "{case}");
        // Derived keys and pending SMF requests of a handover are not stored in fields of the
        // context.
        let context = context(|ue| {
            let stage = HandoverSmfStage::Preparing { cause: vec![0], container: vec![3; 9] };
            let crossing = HandoverSmfState { waiting: vec![(7, vec![1, 2])], stage, ..HandoverSmfState::default() };
            ue.remote_sessions.handover = Some(Box::new(crossing));
            ue.security =
                ue.security.take().map(|keys| NasSecurity { derives_keys: true, agreed_at: Instant(9), ..keys });
            ue.connections = 3;
        });
        let derived = vireo_core::amf::context::decode(&context).unwrap();
        assert!(derived.remote_sessions.handover.is_some(), "{case}");
        assert!(derived.security.is_some_and(|keys| keys.derives_keys && keys.knas_int != [1; 16]), "{case}");
        let next = UeRecord { step: 3, consumed: 8, context, ..there };
        let there = commit_and_read(&mut database, &next);
        assert_eq!(plain(&there), plain(&next), "{case}");
        let gone = UeRecord { step: 4, consumed: 9, removed: true, context: Vec::new(), ..there };
        assert_eq!(plain(&commit_and_read(&mut database, &gone)), plain(&gone), "{case}");
        let left = records.clone().load(&[name(database.config(), id())]).unwrap().remove(0).unwrap();
        let text = String::from_utf8_lossy(&left.parts.iter().flat_map(|(_, part)| part.clone()).collect::<Vec<_>>())
            .into_owned();
        assert!(left.part("security").is_none() && !text.contains("kamf"), "nothing stays of who is gone: {case}");
    }
}

#[test]
fn json_record_has_readable_fields() {
    let records = MemoryRecords::new(LIFE);
    for scope in SCOPES {
        let config = config(StateFormat::Json, StateChange::Update, scope, u64::MAX);
        let mut database = ContextDatabase::over(config.clone(), &records);
        commit_and_read(&mut database, &ue());
        let found = records.clone().load(&[name(&config, id())]).unwrap().remove(0).unwrap();
        let value = |octets: &[u8]| serde_json::from_slice::<serde_json::Value>(octets).unwrap();
        let (all, context) = match found.part(shared_record::AMF) {
            Some(part) => (value(part), value(part)["context"].clone()),
            None => {
                let fields = found.parts.iter().map(|(name, octets)| (name.clone(), value(octets)));
                let all = serde_json::Value::Object(fields.collect());
                (all.clone(), all)
            }
        };
        assert_eq!((&all["owner"], &all["removed"]), (&u64::MAX.into(), &false.into()));
        assert_eq!(all["outboxes"][0]["outbox"], "00ff11");
        assert_eq!(all["requests"][0]["request"]["Release"]["reference"], "x");
        assert_eq!(
            (&context["registration"], &context["security"]["downlink"]),
            (&"Deregistered".into(), &u32::MAX.into())
        );
        assert_eq!(context["identity"]["supi"], "999700000000001", "as it is written on the card");
    }
}

/// Update writes only changed fields if the present content is known.
#[test]
fn update_writes_changed_fields_replace_all() {
    for format in [StateFormat::Json, StateFormat::Protobuf] {
        for change in CHANGES {
            let told = LoggedRecords(MemoryRecords::new(LIFE), Arc::default());
            let mut database = ContextDatabase::over(config(format, change, StateScope::Function, u64::MAX), &told);
            let there = commit_and_read(&mut database, &ue());
            let context = context(|ue| ue.connections = 3);
            let next = UeRecord { step: 3, consumed: 8, context, ..there };
            let there = commit_and_read(&mut database, &next);
            let (names, others_stay) = told.1.lock().unwrap().pop().unwrap();
            if change == StateChange::Replace {
                assert!(!others_stay && names.contains(&"security".to_owned()));
            } else {
                assert_eq!(
                    (names, others_stay),
                    (["step", "consumed", "connections"].map(str::to_owned).to_vec(), true)
                );
            }
            // Without knowledge of the content all fields are written.
            commit_and_read(&mut database, &plain(&UeRecord { step: 4, consumed: 9, ..there }));
            let (names, others_stay) = told.1.lock().unwrap().pop().unwrap();
            assert!(!others_stay && names.len() > 20, "{names:?}");
        }
    }
    // Binary records are one piece.
    let told = LoggedRecords(MemoryRecords::new(LIFE), Arc::default());
    let mut database =
        ContextDatabase::over(config(StateFormat::Binary, StateChange::Update, StateScope::Function, 1), &told);
    commit_and_read(&mut database, &ue());
    assert_eq!(told.1.lock().unwrap()[..], [(Vec::new(), false)]);
}

/// Records of releases before documents and of other formats are read correctly or refused.
#[test]
fn record_of_other_form_is_read_or_refused() {
    let put = |records: &MemoryRecords, at: Name, change: Change<'_>| {
        records.clone().change(&[(at, change)]).remove(0).unwrap();
    };
    let octets = ue().encode().unwrap();
    for (format, change, scope) in each() {
        let case = format!("{format:?} {change:?} {scope:?}");
        let (records, config) = (MemoryRecords::new(LIFE), config(format, change, scope, u64::MAX));
        let (at, mut database) = (name(&config, id()), ContextDatabase::over(config.clone(), &records));
        if scope == StateScope::Function {
            put(&records, at, Change::Commit { expected: 0, octets: &octets });
            let (_, before) = database.read(id()).unwrap().unwrap();
            let there = commit_and_read(&mut database, &UeRecord { consumed: 8, ..before });
            assert_eq!(plain(&there), UeRecord { consumed: 8, ..ue() }, "it was read, and is of this form now: {case}");
            let found = records.clone().load(&[at]).unwrap().remove(0).unwrap();
            assert_eq!(found.parts.is_empty(), format == StateFormat::Binary, "{case}");
        } else if format != StateFormat::Binary {
            for before in [octets.clone(), format!("\"{}\"", hex::encode(&octets)).into_bytes()] {
                let records = MemoryRecords::new(LIFE);
                let parts = [RecordPart { name: shared_record::AMF, octets: &before }];
                put(&records, at, Change::Update { expected: 0, parts: &parts });
                let there = ContextDatabase::over(config.clone(), &records).read(id());
                assert!(matches!(there, Err(ContextDatabaseError::UnknownFormat)), "{case}: {there:?}");
            }
        }
        // Every other format.
        for other in FORMATS.into_iter().filter(|other| *other != format) {
            let records = MemoryRecords::new(LIFE);
            let others = ContextDatabaseConfig {
                records: RecordsConfig { format: other, ..config.records.clone() },
                ..config.clone()
            };
            commit_and_read(&mut ContextDatabase::over(others, &records), &ue());
            match ContextDatabase::over(config.clone(), &records).read(id()) {
                Err(ContextDatabaseError::UnknownFormat) => {}
                Ok(Some((_, there))) if other == StateFormat::Binary && scope == StateScope::Function => {
                    assert_eq!(plain(&there), ue(), "{case}");
                }
                there => panic!("{case} of {other:?}: {there:?}"),
            }
        }
    }
}

/// A new owner reads and writes the same content, and the previous owner cannot commit.
#[test]
fn claim_works_with_documents() {
    for (format, change, scope) in each() {
        let case = format!("{format:?} {change:?} {scope:?}");
        let records = MemoryRecords::new(LIFE);
        let [mut first, mut second] =
            [1, 2].map(|owner| ContextDatabase::over(config(format, change, scope, owner), &records));
        let own = commit_and_read(&mut first, &UeRecord { owner: 1, ..ue() });
        let taker = config(format, change, scope, 2);
        let mut claim = BucketClaim::new(&taker);
        claim.run(&mut records.clone(), |_| true).unwrap();
        let [claimed] = &claim.claimed[..] else { panic!("{case}: {:?}", claim.claimed) };
        assert_eq!((claimed.before, &claimed.stored), (1, &plain(&own)), "{case}");
        let (version, mine) = second.read(id()).unwrap().unwrap();
        assert_eq!((version, mine.owner, mine.step, mine.consumed), (2, 2, 3, 0), "{case}");
        assert_eq!(mine.recovery, own.recovery, "{case}");
        let woken = first.commit((id(), 1), UeRecord { step: 3, consumed: 8, ..own });
        assert!(matches!(woken, Err(ContextDatabaseError::Foreign)), "{case}");
        second.commit((id(), 2), UeRecord { step: 4, consumed: 1, ..mine.clone() }).unwrap();
        assert_eq!(second.read(id()).unwrap().unwrap().1.context, mine.context, "{case}");
    }
}

/// The SMF stores the delegated part exactly as the AMF would.
#[test]
fn smf_stores_the_same_part_as_amf() {
    for format in FORMATS {
        let config = config(format, StateChange::Update, StateScope::AmfSmf, 1);
        let (codec, stored) = (config.records.codec(), ue());
        let kept_here = EncodedUeRecord::new(&config, 0, &stored).unwrap();
        let part = stored_part(codec.format, &stored.encode().unwrap()).unwrap();
        assert_eq!(kept_here.parts()[0].octets, part);
        let found = StoredRecord { parts: vec![(shared_record::AMF.to_owned(), part)], ..StoredRecord::default() };
        let head = shared_record::AmfPartHeader { owner: u64::MAX, step: 2, removed: false };
        assert_eq!(shared_record::AmfPartHeader::from_record(codec.format, &found), Some(head), "{format:?}");
    }
    assert_eq!((stored_part(Format::Json, b"x"), stored_part(Format::Protobuf, &[])), (None, None));
}
