//! CPU limit of a process and its descendants, by cgroup.
//!
//! Uses `cpu.max`, or `cpu.cfs_quota_us` if cgroup version 1 controls the processors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Period of the quota. A group that has used its quota waits until the period ends, so the period
/// is short.
const PERIOD_US: u64 = 20_000;
/// [`PERIOD_US`] as a duration.
pub const PERIOD: Duration = Duration::from_micros(PERIOD_US);
/// Least quota that the kernel accepts.
const QUOTA_MIN_US: u64 = 1_000;
/// Time limit until a group is empty after its processes were killed.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Prefix of all group names.
const PREFIX: &str = "vireo-lab-";

/// Limited group. Dropping it removes the group, once its processes have ended.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    group: PathBuf,
}

/// Directory in which CPU groups are created.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Root {
    /// Cgroup version 1.
    One(PathBuf),
    /// Cgroup version 2.
    Two(PathBuf),
}

impl CpuLimit {
    /// Creates a group whose processes share this fraction of a processor.
    pub(crate) fn new(name: &str, part: f64) -> Result<Self, Failure> {
        let refused = |e: io::Error| {
            Failure(format!("this needs a cgroup that limits processor time, which is refused ({e}): run it with sudo"))
        };
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(refused)?;
        let root = root(&mounts).ok_or_else(|| {
            Failure("this needs cgroups with the processor controller, which are not mounted here".into())
        })?;
        root.clear();
        let quota = ((part * PERIOD_US as f64) as u64).max(QUOTA_MIN_US);
        root.make(&format!("{PREFIX}{}-{name}", std::process::id()), quota).map_err(refused)
    }

    /// Creates a group with these processes.
    pub(crate) fn around(name: &str, part: f64, pids: impl IntoIterator<Item = u32>) -> Result<Self, Failure> {
        let limit = CpuLimit::new(name, part)?;
        pids.into_iter().try_for_each(|pid| limit.take(pid))?;
        Ok(limit)
    }

    /// Adds a process. Its existing children stay outside the group.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.group.join("cgroup.procs"), pid.to_string())
    }
}

impl Root {
    fn make(&self, name: &str, quota_us: u64) -> Result<CpuLimit, io::Error> {
        let (Root::One(path) | Root::Two(path)) = self;
        if let Root::Two(path) = self {
            let control = path.join("cgroup.subtree_control");
            if !fs::read_to_string(&control)?.split_whitespace().any(|word| word == "cpu") {
                fs::write(&control, "+cpu")?;
            }
        }
        let limit = CpuLimit { group: path.join(name) };
        fs::create_dir(&limit.group)?;
        match self {
            Root::One(_) => {
                fs::write(limit.group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(limit.group.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            }
            Root::Two(_) => fs::write(limit.group.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?,
        }
        Ok(limit)
    }

    /// Removes groups that killed runs have left behind.
    fn clear(&self) {
        let (Root::One(path) | Root::Two(path)) = self;
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if maker(&entry.file_name().to_string_lossy()).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // A group with processes cannot be removed.
                let _ = remove(&entry.path());
            }
        }
    }
}

/// Returns the process that created a group of this name.
fn maker(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.split('-').next()
}

/// Returns the first mounted hierarchy with the cpu controller.
fn root(mounts: &str) -> Option<Root> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind, options) = (PathBuf::from(words.next()?), words.next()?, words.next()?);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => Some(Root::One(point)),
            "cgroup2" => {
                let all = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
                all.split_whitespace().any(|word| word == "cpu").then_some(Root::Two(point))
            }
            _ => None,
        }
    })
}

/// Removes a group and the groups below it, which a host creates for its workers.
fn remove(group: &Path) -> io::Result<()> {
    for below in fs::read_dir(group)?.flatten().filter(|entry| entry.path().is_dir()) {
        remove(&below.path())?;
    }
    fs::remove_dir(group)
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        let until = Instant::now() + GONE_WITHIN;
        // Workers end shortly after their host. The next run removes remaining groups.
        while remove(&self.group).is_err() && self.group.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processors_are_looked_for_in_either_version() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /cg/cpuset cgroup rw,cpuset 0 0\ncgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\n";
        assert_eq!(root(one), Some(Root::One("/cg/cpu".into())));
        let directory = tempfile::tempdir().unwrap();
        let two = format!("cgroup2 {} cgroup2 rw 0 0\n", directory.path().display());
        assert_eq!(root(&two), None, "it has no processors");
        fs::write(directory.path().join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        assert_eq!(root(&two), Some(Root::Two(directory.path().into())));
    }

    #[test]
    fn group_name_yields_creator_pid() {
        assert_eq!((maker("vireo-lab-17-host-2"), maker("vireo-17"), maker("user.slice")), (Some("17"), None, None));
    }

    /// A process that only computes gets a fifth of a processor.
    #[test]
    fn whoever_has_used_its_part_up_waits() {
        let Ok(limit) = CpuLimit::new("test", 0.2) else {
            eprintln!("skipped: no groups can be made here");
            return;
        };
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let taken = limit.take(child.id());
        let used = || crate::process::cpu_of(child.id()).unwrap();
        let (begun, before) = (Instant::now(), used());
        std::thread::sleep(Duration::from_millis(400));
        let part = (used() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        child.kill().unwrap();
        child.wait().unwrap();
        taken.unwrap();
        assert!(part < 0.3, "{part}");
        let group = limit.group.clone();
        drop(limit);
        assert!(!group.exists());
    }
}
