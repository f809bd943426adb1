use super::*;
use crate::kubernetes::api_server::{Answer, ApiServer};

fn reconciler(server: &ApiServer) -> Reconciler {
    Reconciler::new(ScaleClient::new(&server.config()).unwrap())
}

#[test]
fn surplus_pods_end_one_by_one() {
    let server = ApiServer::start(1);
    let (mut reconciler, begin) = (reconciler(&server), Instant::now());
    let mut pods = |needed, surplus, seconds| {
        let wait = reconciler.reconcile(HostCounts { needed, surplus }, begin + Duration::from_secs(seconds));
        assert_eq!(wait, CHECK_INTERVAL);
        server.cluster().replicas
    };
    assert_eq!((pods(3, 0, 0), pods(5, 0, 1)), (3, 5));
    assert_eq!(pods(3, 0, 2), 5, "the drained host has not come back, or pods have not joined");
    assert_eq!((pods(3, 2, 3), pods(3, 2, 13)), (4, 4), "the pod has not left");
    server.cluster().ending = 1;
    assert_eq!(pods(3, 1, 20), 4, "nor has it ended");
    server.cluster().ending = 0;
    assert_eq!((pods(3, 1, 23), pods(3, 0, 30)), (3, 3));
    assert_eq!(pods(3, 1, 40), 3, "no fewer than needed");
    // Another client has raised the number.
    server.cluster().replicas = 9;
    assert_eq!((pods(3, 6, 90), pods(3, 6, 100), pods(3, 6, 151)), (8, 8, 7), "a pod that does not leave");
    server.cluster().replicas = 0;
    assert_eq!(pods(3, 0, 160), 3);
}

#[test]
fn change_by_another_client_is_repeated() {
    let server = ApiServer::start(1);
    let mut reconciler = reconciler(&server);
    let mut reconcile = || reconciler.reconcile(HostCounts { needed: 2, surplus: 0 }, Instant::now());
    server.cluster().rivals = 2;
    assert_eq!([reconcile(), reconcile(), reconcile()], [CONFLICT_DELAY, CONFLICT_DELAY, CHECK_INTERVAL]);
    assert_eq!(server.cluster().replicas, 2);
    // A client that never ends is no reason for a flood of requests.
    (server.cluster().rivals, server.cluster().replicas) = (100, 1);
    assert_eq!((0..=CONFLICTS).filter(|_| reconcile() == CHECK_INTERVAL).count(), 1);
}

#[test]
fn persistent_error_is_logged_once() {
    let server = ApiServer::start(1);
    let (mut reconciler, now) = (reconciler(&server), Instant::now());
    let counts = HostCounts { needed: 2, surplus: 0 };
    let logged_at = |reconciler: &Reconciler| reconciler.logged.as_ref().map(|(_, at)| *at);
    server.cluster().answer = Some(Answer::Fixed(403, String::new()));
    for (seconds, logged) in [(0, 0), (10, 0), (300, 300), (310, 300)] {
        assert_eq!(reconciler.reconcile(counts, now + Duration::from_secs(seconds)), CHECK_INTERVAL);
        assert_eq!(logged_at(&reconciler), Some(now + Duration::from_secs(logged)));
    }
    server.cluster().answer = Some(Answer::Fixed(404, String::new()));
    reconciler.reconcile(counts, now + Duration::from_secs(320));
    assert_eq!(logged_at(&reconciler), Some(now + Duration::from_secs(320)), "another error");
    server.cluster().answer = None;
    reconciler.reconcile(counts, now + Duration::from_secs(330));
    assert_eq!((logged_at(&reconciler), server.cluster().replicas), (None, 2));
}

#[test]
fn thread_scales_to_newest_counts() {
    let server = ApiServer::start(1);
    let mut scaler = StatefulSetScaler::start(&server.config()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    for needed in [2, 4, 7] {
        scaler.scale(HostCounts { needed, surplus: 0 });
    }
    while server.cluster().replicas != 7 {
        assert!(Instant::now() < deadline, "{:?}", server.cluster());
        scaler.scale(HostCounts { needed: 7, surplus: 0 });
        std::thread::sleep(Duration::from_millis(10));
    }
}
