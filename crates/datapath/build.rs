//! Compiles the BPF programs of `bpf/` for the target architecture and byte order, with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let (target, headers) = match architecture.as_str() {
        "x86_64" => ("-D__TARGET_ARCH_x86", "x86_64-linux-gnu"),
        "aarch64" => ("-D__TARGET_ARCH_arm64", "aarch64-linux-gnu"),
        other => panic!("there is no user plane for the architecture {other}: x86_64 and aarch64 are known"),
    };
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN") == "little" { "bpfel" } else { "bpfeb" };
    // The second of the two programs from one source is for frames in several buffers.
    for (program, object, more) in [
        ("upf", "upf", None),
        ("upf", "upf_frags", Some("-DFRAGS")),
        ("steer", "steer", None),
        ("slices", "slices", None),
    ] {
        let object = PathBuf::from(variable("OUT_DIR")).join(format!("{object}.bpf.o"));
        compile(program, &object, [Some(target), more], [endian, headers]);
    }
}

fn compile(program: &str, object: &Path, definitions: [Option<&str>; 2], [endian, headers]: [&str; 2]) {
    let source = format!("bpf/{program}.bpf.c");
    // Line information costs nothing in the kernel, and verifier errors are unreadable without it.
    let result = Command::new("clang")
        .args(["-target", endian, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra"])
        .args(definitions.into_iter().flatten())
        .arg(format!("-I/usr/include/{headers}"))
        // The headers of a cross compiler.
        .arg(format!("-I/usr/{headers}/include"))
        .args(["-c", &source, "-o"])
        .arg(object)
        .status();
    match result {
        Ok(status) if status.success() => {}
        Ok(_) => panic!("clang refused {source}: if a header is missing, run `make setup` (clang, libbpf-dev)"),
        Err(error) => panic!("cannot run clang ({error}): run `make setup`, or install clang and libbpf-dev"),
    }
}
