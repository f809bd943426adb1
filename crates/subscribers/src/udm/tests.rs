use super::*;
use crate::record::{Key, Subscriber};
use crate::store::tests::{TestDatabase, over_both};
use crate::store::{Filter, OnExisting};
use crate::testing::PostgresServer;
use crossbeam_channel::{Receiver, bounded};
use std::collections::HashSet;
use std::time::Duration;
use vireo_core::subscription::{AuthenticationInfo, Resync};
use vireo_wire::eap::TransformedKeys;
use vireo_wire::security::milenage::{K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{HomeNetworkPublicKey, Protection, RoutingIndicator, Suci};
use vireo_wire::security::{Autn, Plmn as WirePlmn, Rand};

const K_OCTETS: [u8; 16] = [0x46; 16];
const OPC_OCTETS: [u8; 16] = [0xe8; 16];
/// 2025-11-20.
const NOW: Instant = Instant(1_763_600_000_000_000);
const HN_A: [u8; 32] = [0x42; 32];
const HN_B: [u8; 32] = [0x43; 32];

fn supi(n: u64) -> Supi {
    "999700000000001".parse::<Supi>().expect("an IMSI").offset(n).expect("15 digits")
}

fn plmn() -> Plmn {
    "99970".parse().expect("a PLMN")
}

/// A database with subscribers.
struct Bed<'a>(&'a TestDatabase);

impl<'a> Bed<'a> {
    fn new(database: &'a TestDatabase, subscribers: u64) -> Self {
        let all: Vec<_> =
            (0..subscribers).map(|n| Subscriber::new(supi(n), Key::new(K_OCTETS), Key::new(OPC_OCTETS))).collect();
        database.open().import(&all, OnExisting::Refuse, &mut |_| {}).expect("imported");
        Bed(database)
    }

    fn start(&self, config: UdmConfig) -> (Udm, Receiver<(u64, Answer)>) {
        let (sender, answers) = bounded(100_000);
        let output = move |output| {
            if let UdmOutput::Answer { token, answer } = output {
                drop(sender.send((token, answer)));
            }
        };
        (Udm::start(self.store(), config, NOW, output).expect("started"), answers)
    }

    fn store(&self) -> Store {
        self.0.open()
    }
}

over_both! {
    usim_accepts_vector every_scheme_leads_to_the_subscriber auts_moves_sqn_and_survives_restart
    method_selects_vector usim_accepts_transformed_vector
    sqn_is_never_used_twice external_change_takes_effect small_cache_evicts_and_reloads
    changes_are_reported_and_read preloaded_subscriber_is_answered_at_once suci_storm_is_refused_without_delay failed_database_recovers
}

fn changes_are_reported_and_read(database: &TestDatabase) {
    let bed = Bed::new(database, 3);
    let (sender, outputs) = bounded(100);
    let output = move |output| drop(sender.send(output));
    let udm = Udm::start(bed.store(), UdmConfig::default(), NOW, output).expect("started");
    let next = || outputs.recv_timeout(Duration::from_secs(20)).expect("an output");
    let mut store = bed.store();
    let mut changed = store.get(supi(1)).expect("a record").expect("a record");
    changed.subscription.suspended = true;
    store.upsert(&changed).expect("changed");
    store.remove([supi(2)]).expect("removed");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let UdmOutput::Changed(Changes::These(supis)) = next() else { panic!("changes") };
        seen.extend(supis);
    }
    assert_eq!(seen, [supi(1), supi(2)]);
    for (n, is_repeated) in [(1, false), (2, true)] {
        udm.read(supi(n), is_repeated).expect("room");
        let UdmOutput::Record { supi: of, is_repeated: then, subscription: Ok(subscription) } = next() else {
            panic!("a record")
        };
        assert_eq!((of, then), (supi(n), is_repeated));
        assert_eq!(subscription, (n == 1).then_some(changed.subscription.clone()));
    }
}

fn cold() -> UdmConfig {
    let key = |id, profile, private| HomeNetworkKey::new(id, profile, private).expect("a key");
    let home_network_keys = vec![key(1, Profile::A, &HN_A), key(2, Profile::B, &HN_B)];
    UdmConfig { preload: false, deconceal_threads: 2, home_network_keys, ..UdmConfig::default() }
}

fn by_supi(n: u64) -> AuthenticationRequest {
    AuthenticationRequest { identity: SubscriberIdentity::Supi(supi(n)), serving_network: plmn(), resync: None }
}

fn by_suci(n: u64, protection: Protection<'_>) -> AuthenticationRequest {
    let msin = &supi(n).reveal()[5..];
    let home = WirePlmn::new("999", "70").expect("a PLMN");
    let suci = Suci::conceal_imsi(home, msin, RoutingIndicator::default(), protection).expect("concealed");
    let octets = suci.to_nas_octets().expect("of an IMSI");
    AuthenticationRequest { identity: SubscriberIdentity::Suci(octets), ..by_supi(n) }
}

/// USIM of the UE, which behaves as in TS 33.102 6.3.3, with one SEQMS and the limit of C.2.1.
struct Usim {
    milenage: Milenage,
    sqn_ms: u64,
}

impl Usim {
    fn new(sqn_ms: u64) -> Self {
        Usim { milenage: Milenage::new(&K::new(&K_OCTETS), &Opc::new(&OPC_OCTETS)), sqn_ms }
    }

    /// Returns RES* if the USIM accepts the challenge, else the data for a resynchronisation.
    fn challenge(&mut self, info: &AuthenticationInfo) -> Result<[u8; 16], Resync> {
        let rand = Rand::new(&info.rand);
        let response = self.milenage.check_autn(&rand, &Autn::new(&info.autn)).expect("MAC-A is right");
        assert!(response.amf().separation_bit());
        let (seq, seq_ms) = (response.sqn().get() >> 5, self.sqn_ms >> 5);
        if seq <= seq_ms || seq - seq_ms > 1 << 28 {
            let sqn_ms = Sqn::try_from(self.sqn_ms).expect("48 bits");
            return Err(Resync { rand: info.rand, auts: *self.milenage.auts(&rand, &sqn_ms).as_octets() });
        }
        self.sqn_ms = response.sqn().get();
        let name = plmn().serving_network_name();
        Ok(*response.res_star(name.as_bytes()).expect("a name").as_octets())
    }
}

fn sqn_of(info: &AuthenticationInfo) -> u64 {
    let milenage = Usim::new(0).milenage;
    milenage.check_autn(&Rand::new(&info.rand), &Autn::new(&info.autn)).expect("MAC-A is right").sqn().get()
}

fn wait(answers: &Receiver<(u64, Answer)>) -> (u64, Answer) {
    answers.recv_timeout(Duration::from_secs(20)).expect("an answer")
}

/// Returns the vector of AKA in an answer.
fn aka_vector(answer: Answer) -> Result<AuthenticationInfo, AuthenticationError> {
    answer.map(|vector| match vector {
        AuthenticationVector::Aka(info) => info,
        AuthenticationVector::EapAkaPrime(_) => panic!("a vector of EAP-AKA'"),
    })
}

/// As [`request_any`], for a vector of AKA.
fn request_vector(
    udm: &Udm,
    answers: &Receiver<(u64, Answer)>,
    request: AuthenticationRequest,
    rand: u8,
) -> Result<AuthenticationInfo, AuthenticationError> {
    aka_vector(request_any(udm, answers, request, rand))
}

/// Gets an answer at once if possible, else submits the request and waits.
fn request_any(udm: &Udm, answers: &Receiver<(u64, Answer)>, request: AuthenticationRequest, rand: u8) -> Answer {
    if let Some(answer) = udm.try_now(&request, NOW, [rand; 16]) {
        return answer;
    }
    udm.submit(7, request, NOW, [rand; 16])?;
    let (token, answer) = wait(answers);
    assert_eq!(token, 7);
    answer
}

/// The method of a record precedes that of the configuration. EPS has EPS AKA.
fn method_selects_vector(database: &TestDatabase) {
    let (five, eap) = (AuthenticationMethod::FiveGAka, AuthenticationMethod::EapAkaPrime);
    let bed = Bed::new(database, 3);
    let mut store = database.open();
    for (n, method) in [(1, Some(eap)), (2, Some(five))] {
        let record = store.get(supi(n)).expect("read").expect("a record");
        store.upsert(&Subscriber { method, ..record }).expect("replaced");
    }
    for (default, expected) in [(five, [five, eap, five]), (eap, [eap, eap, five])] {
        let (udm, answers) = bed.start(UdmConfig { authentication_method: default, ..cold() });
        for (n, method) in (0..).zip(expected) {
            let vector = request_any(&udm, &answers, by_supi(n), 1).expect("a vector");
            let is_eap = matches!(vector, AuthenticationVector::EapAkaPrime(_));
            assert_eq!((is_eap, vector.supi()), (method == eap, supi(n)));
            let imsi = AuthenticationRequest { identity: SubscriberIdentity::Imsi(supi(n)), ..by_supi(n) };
            assert!(matches!(request_any(&udm, &answers, imsi, 2), Ok(AuthenticationVector::Aka(_))));
        }
    }
}

/// The USIM derives the same CK' and IK' from the AUTN of the vector.
fn usim_accepts_transformed_vector(database: &TestDatabase) {
    let bed = Bed::new(database, 1);
    let method = AuthenticationMethod::EapAkaPrime;
    let (udm, answers) = bed.start(UdmConfig { authentication_method: method, ..cold() });
    let answer = request_any(&udm, &answers, by_supi(0), 1).expect("a vector");
    let AuthenticationVector::EapAkaPrime(vector) = answer else { panic!("a vector of AKA") };
    let (autn, name) = (Autn::new(&vector.autn), plmn().serving_network_name());
    let response = Usim::new(0).milenage.check_autn(&Rand::new(&vector.rand), &autn).expect("MAC-A is right");
    assert!(response.amf().separation_bit());
    let keys = TransformedKeys::derive(response.ck(), response.ik(), name.as_bytes(), &autn).expect("keys");
    assert_eq!((keys.ck(), keys.ik()), (&vector.ck_prime, &vector.ik_prime));
    assert_eq!((response.res().as_octets(), vector.serving_network), (&vector.xres, plmn()));
    assert_eq!(vector.subscription, crate::lab_subscription());
}

fn usim_accepts_vector(database: &TestDatabase) {
    let bed = Bed::new(database, 2);
    let (udm, answers) = bed.start(cold());
    assert!(udm.try_now(&by_supi(0), NOW, [1; 16]).is_none(), "not read yet");
    let info = request_vector(&udm, &answers, by_supi(0), 1).expect("a vector");
    assert_eq!(Usim::new(0).challenge(&info), Ok(info.xres_star));
    assert_eq!((info.supi, info.rand), (supi(0), [1; 16]));
    assert_eq!(info.subscription, crate::lab_subscription());
    let again = aka_vector(udm.try_now(&by_supi(0), NOW, [2; 16]).expect("in memory now")).expect("a vector");
    assert!(sqn_of(&again) > sqn_of(&info));
    assert_eq!(request_vector(&udm, &answers, by_supi(5), 1), Err(AuthenticationError::UnknownSubscriber));
    assert_eq!(udm.load().cached, 1);
}

fn every_scheme_leads_to_the_subscriber(database: &TestDatabase) {
    let bed = Bed::new(database, 3);
    let (udm, answers) = bed.start(cold());
    let public = |key: &HomeNetworkKey| match key.profile() {
        Profile::A => HomeNetworkPublicKey::profile_a(&key.public().try_into().expect("32 octets")),
        Profile::B => HomeNetworkPublicKey::profile_b(&key.public()).expect("a point"),
    };
    let keys = cold().home_network_keys;
    let ecies = [(1, public(&keys[0])), (2, public(&keys[1]))];
    let null = request_vector(&udm, &answers, by_suci(0, Protection::Null), 1).expect("a vector");
    assert_eq!(null.supi, supi(0));
    for (n, (key_id, key)) in ecies.iter().enumerate() {
        let n = n as u64 + 1;
        let request = by_suci(n, Protection::Ecies { key_id: *key_id, key });
        for _cold_then_warm in 0..2 {
            assert!(udm.try_now(&request, NOW, [0; 16]).is_none(), "never on the caller's thread");
            let info = request_vector(&udm, &answers, request.clone(), 3).expect("a vector");
            assert_eq!((info.supi, Usim::new(0).challenge(&info)), (supi(n), Ok(info.xres_star)));
        }
        let wrong_id = by_suci(n, Protection::Ecies { key_id: 9, key });
        let wrong_scheme = by_suci(n, Protection::Ecies { key_id: 3 - *key_id, key });
        let mut forged = request.clone();
        if let SubscriberIdentity::Suci(octets) = &mut forged.identity {
            *octets.last_mut().expect("a MAC tag") ^= 1;
        }
        for unknown in [wrong_id, wrong_scheme] {
            assert_eq!(request_vector(&udm, &answers, unknown, 1), Err(AuthenticationError::UnknownHomeKey));
        }
        // A USIM with another public key under the same identifier, and octets that were modified
        // in transit.
        let other = HomeNetworkKey::generate(*key_id, keys[n as usize - 1].profile()).expect("a key").0;
        let wrong_key = by_suci(n, Protection::Ecies { key_id: *key_id, key: &public(&other) });
        for bad in [wrong_key, forged] {
            assert_eq!(request_vector(&udm, &answers, bad, 1), Err(AuthenticationError::BadSuci));
        }
    }
    let mut junk = by_supi(0);
    junk.identity = SubscriberIdentity::Suci(vec![1, 2, 3]);
    assert_eq!(udm.try_now(&junk, NOW, [0; 16]), Some(Err(AuthenticationError::BadSuci)));
    assert_eq!(udm.submit(1, junk, NOW, [0; 16]), Err(AuthenticationError::BadSuci));
}

fn auts_moves_sqn_and_survives_restart(database: &TestDatabase) {
    let bed = Bed::new(database, 1);
    let mut usim = Usim::new(1 << 46);
    let (udm, answers) = bed.start(cold());
    let info = request_vector(&udm, &answers, by_supi(0), 1).expect("a vector");
    let resync = usim.challenge(&info).expect_err("behind the USIM");
    let mut forged = resync;
    forged.auts[13] ^= 1;
    let request = |resync| AuthenticationRequest { resync: Some(resync), ..by_supi(0) };
    assert_eq!(request_vector(&udm, &answers, request(forged), 2), Err(AuthenticationError::BadAuts));
    let other_rand = Resync { rand: [9; 16], ..resync };
    assert_eq!(request_vector(&udm, &answers, request(other_rand), 2), Err(AuthenticationError::BadAuts));
    assert_eq!(bed.store().get(supi(0)).expect("read").expect("there").sqn_offset, 0, "nothing stored for these");

    let info = request_vector(&udm, &answers, request(resync), 3).expect("a vector");
    assert_eq!(usim.challenge(&info), Ok(info.xres_star));
    // The same AUTS again, as after a lost answer: the SQN is still above SQNMS, and never the same
    // twice.
    let repeated = request_vector(&udm, &answers, request(resync), 4).expect("a vector");
    assert_eq!(usim.challenge(&repeated), Ok(repeated.xres_star));
    drop(udm);

    let (udm, answers) = bed.start(cold());
    let info = request_vector(&udm, &answers, by_supi(0), 5).expect("a vector");
    assert_eq!(usim.challenge(&info), Ok(info.xres_star), "no second resynchronisation");
    // A new USIM with the same keys is further behind than TS 33.102 C.2.1 lets it accept.
    let mut new_card = Usim::new(0);
    let resync = new_card.challenge(&info).expect_err("too far ahead");
    let info = request_vector(&udm, &answers, request(resync), 6).expect("a vector");
    assert_eq!(new_card.challenge(&info), Ok(info.xres_star));
    assert_eq!(sqn_of(&info) >> 5, 2, "from SEQMS on");
}

fn sqn_is_never_used_twice(database: &TestDatabase) {
    let bed = Bed::new(database, 1);
    let mut all = HashSet::new();
    let mut highest = 0;
    for run in 0..3 {
        let (udm, answers) = bed.start(UdmConfig { preload: false, ind: 4, ..UdmConfig::default() });
        // The clock goes back from run to run.
        let now = Instant(NOW.0 - run * 3_600_000_000);
        udm.submit(0, by_supi(0), now, [0; 16]).expect("taken");
        let first = aka_vector(wait(&answers).1).expect("a vector");
        assert!(sqn_of(&first) > highest, "run {run}");
        assert_eq!(sqn_of(&first) & 31, 4);
        let ask_often = || {
            let mut last = 0;
            let mut seen = Vec::new();
            for _ in 0..3000 {
                // The reservation may be exhausted: 6,000 in a second exceed it.
                let answer = udm.try_now(&by_supi(0), now, [1; 16]);
                let Some(answer) = answer else { break };
                let sqn = sqn_of(&aka_vector(answer).expect("a vector"));
                assert!(sqn > last);
                last = sqn;
                seen.push(sqn);
            }
            seen
        };
        let lists = std::thread::scope(|scope| [scope.spawn(ask_often), scope.spawn(ask_often)].map(|t| t.join()));
        for sqn in lists.into_iter().flat_map(|l| l.expect("no panic")).chain([sqn_of(&first)]) {
            assert!(all.insert(sqn), "{sqn} twice");
            highest = highest.max(sqn);
        }
        // One UE has exhausted the reservation; the next submitted request extends it.
        udm.submit(1, by_supi(0), now, [1; 16]).expect("taken");
        let moved = sqn_of(&aka_vector(wait(&answers).1).expect("a vector"));
        assert!(moved > highest && all.insert(moved));
        highest = moved;
        if run == 0 {
            // As after a crash: the last reservation stays.
            std::mem::forget(udm);
        }
    }
}

fn external_change_takes_effect(database: &TestDatabase) {
    let bed = Bed::new(database, 2);
    let (udm, answers) = bed.start(cold());
    let before = request_vector(&udm, &answers, by_supi(0), 1).expect("a vector");
    request_vector(&udm, &answers, by_supi(1), 1).expect("a vector");
    let mut store = bed.store();
    store.remove([supi(1)]).expect("removed");
    let mut changed = store.get(supi(0)).expect("read").expect("there");
    changed.subscription.ambr.uplink_bps = 5;
    store.upsert(&changed).expect("replaced");
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while udm.load().cached > 0 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(std::time::Instant::now() < deadline, "the cache still has what changed");
    assert_eq!(request_vector(&udm, &answers, by_supi(1), 2), Err(AuthenticationError::UnknownSubscriber));
    let after = request_vector(&udm, &answers, by_supi(0), 2).expect("a vector");
    assert_eq!(after.subscription.ambr.uplink_bps, 5);
    assert!(sqn_of(&after) > sqn_of(&before));
    let mut new = changed.clone();
    new.supi = supi(50);
    store.add(&new).expect("added");
    assert!(request_vector(&udm, &answers, by_supi(50), 2).is_ok(), "at once: what is not there is not remembered");
}

fn small_cache_evicts_and_reloads(database: &TestDatabase) {
    let bed = Bed::new(database, 5000);
    let (udm, answers) = bed.start(UdmConfig { cache_records: 1, preload: false, ..UdmConfig::default() });
    let mut last = vec![0; 5000];
    for round in 0..2 {
        for n in 0..5000 {
            udm.submit(n, by_supi(n), NOW, [round; 16]).expect("taken");
        }
        for _ in 0..5000 {
            let (token, answer) = wait(&answers);
            let info = aka_vector(answer).expect("a vector");
            assert_eq!(info.supi, supi(token));
            let sqn = sqn_of(&info);
            assert!(std::mem::replace(&mut last[token as usize], sqn) < sqn, "{token}");
        }
        assert!(udm.load().cached <= 2048, "{:?}", udm.load());
    }
}

fn preloaded_subscriber_is_answered_at_once(database: &TestDatabase) {
    let bed = Bed::new(database, 2000);
    let (udm, _answers) = bed.start(UdmConfig::default());
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while udm.load().cached < 2000 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((0..2000).all(|n| matches!(udm.try_now(&by_supi(n), NOW, [0; 16]), Some(Ok(_)))));
}

fn suci_storm_is_refused_without_delay(database: &TestDatabase) {
    let bed = Bed::new(database, 2);
    let (udm, answers) = bed.start(UdmConfig { queue: 16, deconceal_threads: 1, ..cold() });
    request_vector(&udm, &answers, by_supi(0), 1).expect("a vector");
    let key = HomeNetworkKey::new(2, Profile::B, &HN_B).expect("a key");
    let public = HomeNetworkPublicKey::profile_b(&key.public()).expect("a point");
    let concealed = by_suci(1, Protection::Ecies { key_id: 2, key: &public });
    let mut waiting = 0;
    let mut refused = 0;
    for token in 0..500 {
        match udm.submit(token, concealed.clone(), NOW, [0; 16]) {
            Ok(()) => waiting += 1,
            Err(AuthenticationError::Unavailable) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(matches!(udm.try_now(&by_supi(0), NOW, [1; 16]), Some(Ok(_))), "others are served meanwhile");
    }
    assert!(refused > 0 && waiting > 0);
    // A de-concealed SUCI may still find the queue of the database full.
    let answered: Vec<Answer> = (0..waiting).map(|_| wait(&answers).1).collect();
    assert!(answered.iter().all(|answer| matches!(answer, Ok(_) | Err(AuthenticationError::Unavailable))));
    assert!(answered.iter().any(Result::is_ok));
}

fn failed_database_recovers(database: &TestDatabase) {
    let bed = Bed::new(database, 1);
    let (udm, answers) = bed.start(cold());
    let mut store = bed.store();
    assert_eq!(store.count(&Filter::default()).expect("counted"), 1);
    // Simulates damage of the database.
    store.run_for_test("ALTER TABLE subscribers RENAME TO hidden");
    assert_eq!(request_vector(&udm, &answers, by_supi(0), 1), Err(AuthenticationError::Unavailable));
    store.run_for_test("ALTER TABLE hidden RENAME TO subscribers");
    assert!(request_vector(&udm, &answers, by_supi(0), 1).is_ok());
}

#[test]
fn outage_of_postgres_spares_cached_records() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::at(server.database());
    let bed = Bed::new(&database, 2);
    let (udm, answers) = bed.start(cold());
    let before = request_vector(&udm, &answers, by_supi(0), 1).expect("a vector");
    server.stop();
    let during = aka_vector(udm.try_now(&by_supi(0), NOW, [2; 16]).expect("cached")).expect("a vector");
    assert!(sqn_of(&during) > sqn_of(&before));
    assert_eq!(request_vector(&udm, &answers, by_supi(1), 1), Err(AuthenticationError::Unavailable));
    server.start_again();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let mut after = Err(AuthenticationError::Unavailable);
    while after.is_err() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        after = request_vector(&udm, &answers, by_supi(1), 2);
    }
    assert_eq!(after.expect("a vector").supi, supi(1));
    // The change log goes on from where the outage found it.
    bed.store().remove([supi(0)]).expect("removed");
    while udm.load().cached > 1 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(request_vector(&udm, &answers, by_supi(0), 3), Err(AuthenticationError::UnknownSubscriber));
}

/// Two hosts with one slot, as of two clusters, or more than 32 hosts.
#[test]
fn hosts_of_one_slot_never_share_an_sqn() {
    let database = TestDatabase::postgres();
    let bed = Bed::new(&database, 1);
    let hosts: Vec<_> = (0..2).map(|_| bed.start(UdmConfig { ind: 9, ..cold() })).collect();
    let mut all = HashSet::new();
    for round in 0..2500 {
        for (udm, answers) in &hosts {
            let info = request_vector(udm, answers, by_supi(0), round as u8).expect("a vector");
            assert!(all.insert(sqn_of(&info)), "round {round}");
        }
    }
    let mut lines = Vec::new();
    bed.store().backup(&mut lines).expect("written");
    let restored = || crate::store::restore(&database.location, &database.source(), &mut &*lines, true);
    let refused = restored().expect_err("a core runs").to_string();
    assert!(refused.contains("is used by a running core"), "{refused}");
    drop(hosts);
    assert_eq!(restored().expect("no core runs"), 1);
}
