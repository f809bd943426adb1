//! Links libusrsctp, statically where its archive is installed.
//!
//! A statically linked binary runs on machines without the library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=USRSCTP_LIB_DIR");
    let dirs = candidates();
    if let Some(dir) = dirs.iter().find(|dir| dir.join("libusrsctp.a").is_file()) {
        println!("cargo:rustc-link-search=native={}", dir.display());
        println!("cargo:rustc-link-lib=static=usrsctp");
    } else if let Some(dir) = dirs.iter().find(|dir| dir.join("libusrsctp.so").is_file()) {
        println!("cargo:rustc-link-search=native={}", dir.display());
        println!("cargo:rustc-link-lib=dylib=usrsctp");
    } else {
        panic!(
            "libusrsctp is missing: run `make setup`, or install libusrsctp-dev (Debian, Ubuntu) or usrsctp-devel \
             (Fedora), or set USRSCTP_LIB_DIR to the directory that holds libusrsctp.a"
        );
    }
}

/// Returns the possible library directories: from the environment, from pkg-config, then the usual
/// ones.
fn candidates() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::env::var_os("USRSCTP_LIB_DIR").map(PathBuf::from).into_iter().collect();
    let said = Command::new("pkg-config").args(["--variable=libdir", "usrsctp"]).output();
    if let Some(dir) = said.ok().filter(|out| out.status.success()).and_then(|out| String::from_utf8(out.stdout).ok()) {
        dirs.push(PathBuf::from(dir.trim()));
    }
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    dirs.push(PathBuf::from(format!("/usr/lib/{arch}-linux-gnu")));
    dirs.extend(["/usr/lib64", "/usr/lib", "/usr/local/lib"].map(Path::new).map(Path::to_path_buf));
    dirs
}
