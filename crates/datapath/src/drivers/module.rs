//! Modules of the user plane.
//!
//! A module is a part of one user plane with its own interfaces, N3 address, TEID range and
//! processors, for example one function of a network card. All modules share the tables. The module
//! of the receiving interface handles a packet, regardless of the module that assigned the
//! session's TEID.

use crate::start_error::StartError;
use std::net::IpAddr;
use std::path::Path;

/// Configuration of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// N3 address: in the F-TEIDs assigned for the module, and the source of its tunnels.
    pub n3: IpAddr,
    /// Ethernet interfaces on N3 and N6.
    pub interfaces: Vec<String>,
    /// Next hops of the uplink packets, at most one of each family, as
    /// [`crate::XdpConfig::next_hops`].
    pub next_hops: Vec<IpAddr>,
    /// Processors of the workers, one worker for each. Empty = one worker on any processor.
    pub cores: Vec<usize>,
}

impl Module {
    /// Returns the number of workers of a frame driver.
    pub(crate) fn workers(&self) -> usize {
        self.cores.len().max(1)
    }
}

/// Checks the modules: their addresses are N3 addresses, no interface is in two modules, and their
/// processors exist.
///
/// # Errors
///
/// Returns an error if one of these conditions does not hold.
pub(crate) fn check(modules: &[Module], n3: &[IpAddr]) -> Result<(), StartError> {
    for (number, module) in modules.iter().enumerate() {
        if !n3.contains(&module.n3) {
            return Err(StartError::N3NotLocal(module.n3));
        }
        let others = || modules[..number].iter();
        if let Some(name) = module.interfaces.iter().find(|name| others().any(|other| other.interfaces.contains(name)))
        {
            return Err(StartError::ModuleInterface(name.clone()));
        }
        let missing = |core: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists();
        if let Some(core) = module.cores.iter().find(missing) {
            return Err(StartError::ModuleCore(*core));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_modules_are_refused() {
        let module = |n3: [u8; 4], name: &str, cores: &[usize]| Module {
            n3: n3.into(),
            interfaces: vec![name.to_owned()],
            next_hops: vec![],
            cores: cores.to_vec(),
        };
        let n3 = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let check = |modules: &[Module]| check(modules, &n3).err().map(|error| error.to_string());
        assert_eq!(check(&[module([192, 0, 2, 1], "a", &[0]), module([192, 0, 2, 2], "b", &[])]), None);
        let says = |modules: &[Module], text: &str| assert!(check(modules).is_some_and(|error| error.contains(text)));
        says(&[module([192, 0, 2, 1], "a", &[]), module([192, 0, 2, 2], "a", &[])], "interface a is in two modules");
        says(&[module([192, 0, 2, 3], "a", &[])], "192.0.2.3");
        says(&[module([192, 0, 2, 1], "a", &[9999])], "no processor 9999");
    }
}
