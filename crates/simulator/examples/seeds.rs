//! scratch
use vireo_simulator::campaign::{Mutation, Setup, campaign};
fn main() {
    let mut args = std::env::args().skip(1);
    let (a, b): (u64, u64) = (args.next().unwrap().parse().unwrap(), args.next().unwrap().parse().unwrap());
    let mutation = args.next().and_then(|m| Mutation::ALL.into_iter().find(|x| format!("{x:?}") == m));
    let story = std::env::var("STORY").is_ok();
    let mut broken = 0;
    for seed in a..=b {
        let c = campaign(seed, Setup { mutation, ..Setup::default() });
        if let Some((at, why)) = c.broken {
            broken += 1;
            println!("seed {seed}: {:.3} s {why}", at as f64 / 1e6);
            if story { for (t, s) in &c.story { println!("  {:.4} {s}", *t as f64 / 1e6) } }
        }
    }
    println!("{broken} broken");
}
