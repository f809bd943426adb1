//! CPU weights of workers by cgroups (version 2).
//!
//! Each worker has a cgroup `vireo-PID/worker-N`, below the cgroup of this process. This process
//! moves into `vireo-PID/host` if necessary: the kernel distributes the CPU among subgroups only if
//! the group itself has no process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why this process has no cgroups for its workers.
#[derive(Debug, thiserror::Error)]
pub(super) enum CgroupError {
    #[error("this machine has no cgroup version 2")]
    Version,
    #[error("its processor controller is not available here")]
    Controller,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Cgroups of this host.
#[derive(Debug)]
pub(super) struct CgroupTree {
    /// Original cgroup of this process.
    own: PathBuf,
    /// Path of the cgroup `vireo-PID`.
    root: PathBuf,
    /// True if this process moved.
    moved: bool,
    /// True if this process enabled the CPU controller for subgroups of its original cgroup.
    enabled: bool,
}

impl CgroupTree {
    /// Creates the host's cgroup.
    pub(super) fn open() -> Result<Self, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let group = fs::read_to_string("/proc/self/cgroup")?;
        CgroupTree::below(&own_group(&mounts, &group).ok_or(CgroupError::Version)?)
    }

    /// Creates the host's cgroup in another one.
    fn below(own: &Path) -> Result<Self, CgroupError> {
        if !has(&own.join("cgroup.controllers"), "cpu")? {
            return Err(CgroupError::Controller);
        }
        remove_dead_groups(own);
        let root = own.join(format!("vireo-{}", std::process::id()));
        fs::create_dir(&root)?;
        let enabled = !has(&own.join("cgroup.subtree_control"), "cpu")?;
        let mut groups = CgroupTree { own: own.to_path_buf(), root, moved: false, enabled };
        match groups.prepare() {
            Ok(()) => Ok(groups),
            Err(error) => {
                groups.end();
                Err(error.into())
            }
        }
    }

    /// Enables the CPU controller in the original cgroup and in the host's.
    fn prepare(&mut self) -> io::Result<()> {
        let on = |group: &Path| fs::write(group.join("cgroup.subtree_control"), "+cpu");
        if self.enabled && on(&self.own).is_err() {
            // The cgroup has a process. If that is only this one, moving helps.
            let host = self.root.join("host");
            fs::create_dir(&host)?;
            fs::write(host.join("cgroup.procs"), std::process::id().to_string())?;
            self.moved = true;
            on(&self.own)?;
        }
        on(&self.root)
    }

    /// Moves a worker into its cgroup and sets its weight.
    pub(super) fn set(&self, worker: u8, pid: u32, weight: u32) -> io::Result<()> {
        let group = self.root.join(format!("worker-{worker}"));
        if !group.exists() {
            fs::create_dir(&group)?;
        }
        fs::write(group.join("cpu.weight"), weight.to_string())?;
        fs::write(group.join("cgroup.procs"), pid.to_string())
    }

    /// Removes the cgroup of a dead worker.
    pub(super) fn remove(&mut self, worker: u8) {
        // A worker without a weight has no cgroup.
        let _ = fs::remove_dir(self.root.join(format!("worker-{worker}")));
    }

    /// Removes all cgroups and undoes the changes, after all workers have exited.
    pub(super) fn end(self) {
        let workers = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for group in workers.filter(|e| e.file_name().to_string_lossy().starts_with("worker-")) {
            let _ = fs::remove_dir(group.path());
        }
        let off = |group: &Path| fs::write(group.join("cgroup.subtree_control"), "-cpu");
        let undo = || -> io::Result<()> {
            off(&self.root)?;
            if self.enabled {
                off(&self.own)?;
            }
            if self.moved {
                fs::write(self.own.join("cgroup.procs"), std::process::id().to_string())?;
            }
            if self.root.join("host").exists() {
                fs::remove_dir(self.root.join("host"))?;
            }
            fs::remove_dir(&self.root)
        };
        if let Err(error) = undo() {
            tracing::debug!(%error, group = %self.root.display(), "a cgroup is left behind; the next start removes it");
        }
    }
}

/// Removes the cgroups of killed hosts. A cgroup in use stays.
fn remove_dead_groups(own: &Path) {
    let groups = fs::read_dir(own).into_iter().flatten().flatten();
    let dead = |name: &str| name.strip_prefix("vireo-").is_some_and(|pid| !Path::new("/proc").join(pid).exists());
    for group in groups.filter(|e| dead(&e.file_name().to_string_lossy())) {
        for inner in fs::read_dir(group.path()).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
            let _ = fs::remove_dir(inner.path());
        }
        let _ = fs::remove_dir(group.path());
    }
}

/// Returns true if the words of a file include this one.
fn has(file: &Path, word: &str) -> io::Result<bool> {
    Ok(fs::read_to_string(file)?.split_ascii_whitespace().any(|w| w == word))
}

/// Returns the path of this process's cgroup. `mounts` is `/proc/self/mountinfo`
/// (proc_pid_mountinfo(5): root and mount point are fields 4 and 5, the file system type follows a
/// dash). `groups` is `/proc/self/cgroup` (version 2: `0::PATH`).
fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounted(mounts, path, |after| after.starts_with("cgroup2 "))
}

/// Returns where a path is mounted in the first hierarchy that `is` accepts. `is` receives the part
/// of the mount's line after the dash.
fn mounted(mounts: &str, path: &str, is: impl Fn(&str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        is(after).then(|| Path::new(point).join(below))
    })
}

/// Returns the number of processors that cgroups of either version leave to this process, if
/// limited. The limit is the lowest of `cpu.max`, or of `cpu.cfs_quota_us` and `cpu.cfs_period_us`,
/// in its cgroup and all parents.
pub fn quota() -> Option<f64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let newer = own_group(&mounts, &groups).and_then(|own| least(&own, |group| max(&read(group, "cpu.max")?)));
    let older = own_group_of_version_1(&mounts, &groups).and_then(|own| {
        least(&own, |group| max(&format!("{} {}", read(group, "cpu.cfs_quota_us")?, read(group, "cpu.cfs_period_us")?)))
    });
    newer.into_iter().chain(older).reduce(f64::min)
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file)).ok()
}

/// Returns the lowest value of a cgroup and its parents.
fn least(own: &Path, of: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
    own.ancestors().filter_map(of).reduce(f64::min)
}

/// Parses `QUOTA PERIOD` to a number of processors; `None` without a limit (`max` or -1).
fn max(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// Returns the path of this process's cgroup in the version 1 hierarchy with the CPU controller.
fn own_group_of_version_1(mounts: &str, groups: &str) -> Option<PathBuf> {
    let has = |words: &str| words.split(',').any(|word| word == "cpu");
    let path = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().filter(|controllers| has(controllers)).and(fields.next())
    })?;
    mounted(mounts, path, |after| {
        after.strip_prefix("cgroup ").is_some_and(|rest| rest.rsplit(' ').next().is_some_and(has))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_quota_is_lowest_of_all_parents() {
        assert_eq!((max("max 100000\n"), max("-1\n 100000\n"), max("25000 100000\n")), (None, None, Some(0.25)));
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("a/b");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cpu.max"), "max 20000\n").unwrap();
        let of = |group: &Path| max(&read(group, "cpu.max")?);
        assert_eq!(least(&own, of), None);
        fs::write(directory.path().join("a/cpu.max"), "30000 20000\n").unwrap();
        assert_eq!(least(&own, of), Some(1.5));
        let mounts =
            "1 0 0:1 / /cg/set rw - cgroup cgroup rw,cpuset\n2 0 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(own_group_of_version_1(mounts, "2:cpuset:/x\n1:cpu,cpuacct:/y\n"), Some(PathBuf::from("/cg/cpu/y")));
        assert_eq!(own_group_of_version_1(mounts, "0::/y\n"), None);
    }

    #[test]
    fn own_group_is_found_where_it_is_mounted() {
        let hybrid = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected = Some(PathBuf::from("/sys/fs/cgroup/unified/a.slice/b"));
        assert_eq!(own_group(hybrid, "1:cpu:/x\n0::/a.slice/b\n"), expected);
        let container = "9 8 0:27 /docker/c /sys/fs/cgroup rw shared:1 - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(own_group(container, "0::/docker/c/d\n"), Some(PathBuf::from("/sys/fs/cgroup/d")));
        assert_eq!(own_group("31 30 0:27 / /cg rw - cgroup cgroup rw,cpu\n", "0::/\n"), None);
        assert_eq!(own_group(hybrid, "1:cpu:/\n"), None);
    }

    /// A directory that looks like a cgroup. The test only checks that written values can be read
    /// back.
    #[test]
    fn weights_are_written_and_everything_is_removed() {
        let own = std::env::temp_dir().join(format!("vireo-cgroup-{}", std::process::id()));
        let _ = fs::remove_dir_all(&own);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "cpuset memory\n").unwrap();
        assert!(matches!(CgroupTree::below(&own), Err(CgroupError::Controller)));
        fs::write(own.join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        fs::write(own.join("cgroup.subtree_control"), "cpu\n").unwrap();
        fs::create_dir_all(own.join("vireo-4194305/worker-3")).unwrap();
        let groups = CgroupTree::below(&own).unwrap();
        assert!(!own.join("vireo-4194305").exists(), "the group of a host that was killed is removed");
        groups.set(3, 77, 25).unwrap();
        groups.set(3, 77, 50).unwrap();
        let group = groups.root.join("worker-3");
        let read = |name| fs::read_to_string(group.join(name)).unwrap();
        assert_eq!((read("cpu.weight"), read("cgroup.procs")), ("50".into(), "77".into()));
        assert!(!groups.moved && !groups.enabled, "nothing was changed that was right");
        assert_eq!(fs::read_to_string(groups.root.join("cgroup.subtree_control")).unwrap(), "+cpu");
        fs::remove_dir_all(own).unwrap();
    }
}
