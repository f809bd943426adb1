//! Resource usage of this process and its workers, from the kernel.

use std::fmt::Write;

/// `USER_HZ`, the unit of CPU time in `/proc`: 100 on every Linux architecture that Vireo supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns CPU time and resident memory in the Prometheus text format, or `None` if `/proc` lacks
/// them.
pub(super) fn text() -> Option<String> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut text = String::new();
    let series = [
        ("process_cpu_seconds_total", "counter", "CPU time of all threads.", cpu_seconds(&stat)?),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes(&status)?),
    ];
    for (name, kind, help, value) in series {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n").ok()?;
    }
    Some(text)
}

/// Returns user and system time of `/proc/PID/stat`: fields 14 and 15. They are counted after the
/// name, which may contain any character.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((ticks(14)? + ticks(15)?) as f64 / TICKS_PER_SECOND)
}

/// Returns the CPU time of all threads of this process, in microseconds.
pub fn cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec.cast_unsigned() * 1_000_000 + used.tv_nsec.cast_unsigned() / 1000
}

/// Returns the CPU time of another process in microseconds, if it exists. For a single-threaded
/// process the kernel's value is exact to the nanosecond.
pub fn cpu_us_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? / 1000)
}

/// Returns `VmRSS` of `/proc/PID/status` in bytes; the file has units of 1,024 bytes.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_grows() {
        let before = cpu_us();
        let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
        while std::time::Instant::now() < until {}
        assert!(cpu_us() > before);
    }

    #[test]
    fn cpu_time_of_other_process_is_read() {
        assert!(cpu_us_of(std::process::id()).is_some_and(|us| us > 0));
        assert_eq!(cpu_us_of(u32::MAX), None);
    }

    #[test]
    fn proc_files_are_parsed() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 120 30 0 0 20 0 5 0 100 1000 200";
        assert_eq!(cpu_seconds(stat), Some(1.5));
        assert_eq!(cpu_seconds("7 (a"), None);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2_097_152.0));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
