use super::*;
use crate::scenario::Step;

fn weighted(text: &[(Activity, f64)]) -> Steady {
    Steady::weighted(text, 100.0, Pattern::Constant, Duration::ZERO)
}

#[test]
fn weights_make_groups_where_procedures_begin() {
    let steady = weighted(&[
        (Activity::ServiceRequest, 0.5),
        (Activity::XnHandover, 0.2),
        (Activity::PeriodicUpdate, 0.1),
        (Activity::Registration, 0.2),
    ]);
    let groups: Vec<_> = steady.groups.iter().map(|group| (group.home, group.share)).collect();
    assert_eq!(groups, [(RestState::Idle, 0.6), (RestState::Connected, 0.2), (RestState::Off, 0.2)]);
    let choices: Vec<_> = steady.streams[0].choices.iter().map(|choice| choice.group).collect();
    assert_eq!(choices, [0, 1, 0, 2]);
    assert_eq!(steady.sizes(1000), [600, 200, 200]);
    assert!(steady.moves() && !steady.has_data() && steady.rate() == 100.0);
    assert_eq!(steady.fault(1000, 2), None);
}

#[test]
fn data_without_echoes_is_refused() {
    let mix = |echoes| {
        let text = format!(
            "[[profile]]\nname = \"a\"\nstay-connected = true\n{echoes}procedures.data = {{ every = \"1s\" }}\n"
        );
        text.parse::<Mix>().expect("a mix").steady(10, None, None)
    };
    assert_eq!(mix("echoes = 1\n").fault(10, 1), None);
    assert!(mix("").fault(10, 1).is_some_and(|why| why.contains("set echoes")));
    assert!(weighted(&[(Activity::Data, 1.0)]).fault(10, 1).is_some());
}

#[test]
fn every_group_gets_its_ues() {
    let steady = weighted(&[(Activity::ServiceRequest, 0.999), (Activity::XnHandover, 0.001)]);
    assert_eq!(steady.sizes(10), [9, 1]);
    assert_eq!(steady.sizes(7).iter().sum::<u32>(), 7);
    assert!(steady.fault(10, 2).is_some_and(|why| why.contains("fewer threads")));
    assert!(steady.fault(1, 1).is_some());
    assert!(weighted(&[(Activity::ServiceRequest, 1.0)]).fault(1, 1).is_none());
    assert!(weighted(&[]).fault(5, 1).is_some_and(|why| why.contains("no procedures")));
}

#[test]
fn scripts_lead_home_from_everywhere() {
    for activity in Activity::ALL {
        assert_eq!(activity.name().parse(), Ok(activity));
        for home in [RestState::Idle, RestState::Connected] {
            let script = activity.script(home);
            let ends_idle = matches!(script.last(), Some(Step::Idle | Step::Released));
            assert_eq!(ends_idle, home == RestState::Idle, "{activity} {home:?}");
        }
    }
    for activity in [Activity::Registration, Activity::RegistrationSession] {
        assert_eq!(activity.script(RestState::Off).last(), Some(&Step::Deregister));
    }
    assert_eq!("handover".parse(), Ok(Activity::XnHandover));
    assert!("handoff".parse::<Activity>().is_err_and(|error| error.to_string().contains("n2-handover")));
}

#[test]
fn example_file_parses() {
    let mix: Mix = include_str!("../../../../examples/mix.toml").parse().expect("the example");
    let names: Vec<_> = mix.profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["meter", "alarm", "tracker", "phone", "camera"]);
    let steady = mix.steady(10_000, None, None);
    assert_eq!(steady.fault(10_000, 4), None);
    // A meter reports once in 900 s and updates its registration once in 3,240 s.
    let meters: f64 = steady.streams.iter().filter(|s| s.choices[0].group == 0).map(|s| s.rate).sum();
    let size = f64::from(steady.sizes(10_000)[0]);
    assert!((meters - size * (1.0 / 900.0 + 1.0 / 3240.0)).abs() < 1e-9);
    assert!(steady.has_data() && steady.moves());
    // Settings in the file replace the built-in ones.
    let phone = &mix.profiles[3];
    assert_eq!((phone.dwell, phone.data.octets), (Duration::from_secs(10), 500));
    let fast = mix.steady(10_000, Some(500.0), Some(&Pattern::Ramp(Default::default())));
    assert!((fast.rate() - 500.0).abs() < 1e-6);
    let periodic = |stream: &&Stream| stream.pattern == Pattern::Constant;
    assert_eq!(fast.streams.iter().filter(periodic).count(), steady.streams.iter().filter(periodic).count());
    assert_eq!(Mix::built_in().map(|mix| mix.profiles.len()), Ok(4));
}

#[test]
fn wrong_mixes_are_told() {
    for (text, why) in [
        ("", "profile"),
        ("[[profile]]\nname = \"x\"", "no procedures"),
        ("[[profile]]\nname = \"meter\"\nspeed = 3", "speed"),
        ("[[profile]]\nname = \"meter\"\nshare = -1.0", "share"),
        ("[[profile]]\nname = \"meter\"\nshare = 0.0", "share above 0"),
        ("[[profile]]\nname = \"meter\"\ndwell = \"long\"", "dwell"),
        ("[[profile]]\nname = \"x\"\nprocedures.jump = { rate = 1.0 }", "there is no procedure"),
        ("[[profile]]\nname = \"x\"\nprocedures.session = { rate = 1.0, every = \"1s\" }", "session: give"),
        ("[[profile]]\nname = \"x\"\nprocedures.session = { rate = 1.0, pattern = \"T9\" }", "there is no pattern"),
        ("[[profile]]\nname = \"x\"\nprocedures.session = { every = \"0s\" }", "more than 0"),
    ] {
        let error = text.parse::<Mix>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
