//! Memory for many small secrets, excluded from core dumps.

use memmap2::{Advice, MmapMut};
use std::io;
use zeroize::Zeroize;

/// Bytes of a chunk, which is one mapping.
const CHUNK: usize = 256 * 1024;

/// Position of a secret. It is valid only for the slab that returned it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// A set of secrets of `N` bytes each, in mappings that core dumps exclude (MADV_DONTDUMP).
///
/// A secret is overwritten with zeros when it is removed, and all are when the slab is dropped.
pub struct SecretSlab<const N: usize> {
    chunks: Vec<MmapMut>,
    free: Vec<u32>,
    next: u32,
}

impl<const N: usize> std::fmt::Debug for SecretSlab<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretSlab({} secrets)", self.len())
    }
}

impl<const N: usize> Default for SecretSlab<N> {
    fn default() -> Self {
        SecretSlab { chunks: Vec::new(), free: Vec::new(), next: 0 }
    }
}

impl<const N: usize> SecretSlab<N> {
    const PER_CHUNK: usize = CHUNK / N;

    /// Stores a secret.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no memory that core dumps exclude.
    pub fn insert(&mut self, secret: &[u8; N]) -> io::Result<Slot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.grow()?,
        };
        self.at(slot).copy_from_slice(secret);
        Ok(Slot(slot))
    }

    /// Returns the secret of a slot.
    pub fn get(&self, slot: &Slot) -> &[u8; N] {
        let (chunk, offset) = Self::place(slot.0);
        self.chunks[chunk][offset..offset + N].try_into().expect("bug: a slot of another size")
    }

    /// Removes a secret and overwrites it with zeros.
    pub fn remove(&mut self, slot: Slot) {
        self.at(slot.0).zeroize();
        self.free.push(slot.0);
    }

    /// Returns the number of secrets.
    pub fn len(&self) -> usize {
        self.next as usize - self.free.len()
    }

    /// Returns true if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn grow(&mut self) -> io::Result<u32> {
        if self.next as usize == self.chunks.len() * Self::PER_CHUNK {
            let chunk = MmapMut::map_anon(CHUNK)?;
            chunk.advise(Advice::DontDump)?;
            self.chunks.push(chunk);
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn at(&mut self, slot: u32) -> &mut [u8] {
        let (chunk, offset) = Self::place(slot);
        &mut self.chunks[chunk][offset..offset + N]
    }

    fn place(slot: u32) -> (usize, usize) {
        let slot = slot as usize;
        (slot / Self::PER_CHUNK, slot % Self::PER_CHUNK * N)
    }
}

impl<const N: usize> Drop for SecretSlab<N> {
    fn drop(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.zeroize());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_zero_between() {
        let mut slab = SecretSlab::<32>::default();
        let slots: Vec<Slot> = (0..20_000u32).map(|n| slab.insert(&[n as u8 | 1; 32]).unwrap()).collect();
        assert_eq!((slab.len(), slab.chunks.len()), (20_000, 3));
        assert!(slots.iter().zip(0u32..).all(|(slot, n)| slab.get(slot) == &[n as u8 | 1; 32]));
        let mut slots = slots.into_iter();
        let first = slots.next().unwrap();
        let number = first.0;
        slab.remove(first);
        assert_eq!(slab.get(&Slot(number)), &[0; 32], "overwritten");
        assert_eq!((slab.insert(&[9; 32]).unwrap(), slab.chunks.len()), (Slot(number), 3));
    }

    /// Checks the flag `dd` (proc_pid_smaps(5)) of the mapping that holds the secret.
    #[test]
    fn core_dumps_leave_the_mapping_out() {
        let mut slab = SecretSlab::<32>::default();
        let slot = slab.insert(&[1; 32]).unwrap();
        let address = slab.get(&slot).as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let flags = smaps.lines().find_map(|line| {
            if let Some((from, to)) = line.split_whitespace().next().and_then(|range| range.split_once('-'))
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                inside = (from..to).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| inside)
        });
        assert!(flags.expect("the mapping").split_whitespace().any(|flag| flag == "dd"), "{flags:?}");
    }
}
