//! Key derivation of TS 33.401 Annex A and TS 33.220 Annex B, from FIPS 180-4 and RFC 2104 alone.

const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Returns the first 32 bits of the fraction of a root of `n`, which the SHA-256 constants are.
fn cube_root_fraction(n: u64) -> u32 {
    // Largest x with x^3 <= n * 2^96: the root with 32 bits of fraction.
    let target = u128::from(n) << 96;
    let (mut low, mut high) = (0_u128, 1 << 36);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if middle * middle * middle <= target { low = middle } else { high = middle }
    }
    low as u32
}

fn constants() -> [u32; 64] {
    let is_prime = |n: &u64| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let mut primes = (2..).filter(is_prime);
    std::array::from_fn(|_| cube_root_fraction(primes.next().expect("a prime")))
}

fn sha256(message: &[u8]) -> [u8; 32] {
    let k = constants();
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    let mut state = INITIAL;
    for block in padded.chunks(64) {
        let mut w: Vec<u32> = block.chunks(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]])).collect();
        for t in 16..64 {
            let (a, b) = (w[t - 15], w[t - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            w.push(w[t - 16].wrapping_add(s0).wrapping_add(w[t - 7]).wrapping_add(s1));
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for t in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = e & f ^ !e & g;
            let first = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(k[t]).wrapping_add(w[t]);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let second = s0.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(second));
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(new);
        }
    }
    let mut digest = [0; 32];
    for (octets, word) in digest.chunks_mut(4).zip(state) {
        octets.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let pad = |fill: u8| (0..64).map(move |n| key.get(n).copied().unwrap_or(0) ^ fill);
    let inner: Vec<u8> = pad(0x36).chain(message.iter().copied()).collect();
    let outer: Vec<u8> = pad(0x5c).chain(sha256(&inner)).collect();
    sha256(&outer)
}

/// Returns the key of a derivation with one parameter (TS 33.220 B.2).
pub(crate) fn derive(key: &[u8; 32], fc: u8, parameter: &[u8]) -> [u8; 32] {
    let length = (parameter.len() as u16).to_be_bytes();
    hmac(key, &[&[fc], parameter, &length].concat())
}

/// Returns HASHMME of a plain request (TS 33.401 I.2).
pub(crate) fn hash_mme(request: &[u8]) -> Vec<u8> {
    hmac(&[0; 32], request)[24..].to_vec()
}

/// Returns KeNB (TS 33.401 A.3).
pub(crate) fn kenb(kasme: &[u8; 32], uplink_count: u32) -> [u8; 32] {
    derive(kasme, 0x11, &uplink_count.to_be_bytes())
}

/// Returns NH (TS 33.401 A.4); the first one follows KeNB.
pub(crate) fn next_hop(kasme: &[u8; 32], last: &[u8; 32]) -> [u8; 32] {
    derive(kasme, 0x12, last)
}

/// Returns KgNB of 3GPP access (TS 33.501 A.9).
pub(crate) fn kgnb(kamf: &[u8; 32], uplink_count: u32) -> [u8; 32] {
    hmac(kamf, &[&[0x6e][..], &uplink_count.to_be_bytes(), &[0, 4, 1, 0, 1]].concat())
}

/// Returns KNASint of algorithm `nia` (TS 33.501 A.8).
pub(crate) fn knas_int(kamf: &[u8; 32], nia: u8) -> [u8; 16] {
    let key = hmac(kamf, &[0x69, 2, 0, 1, nia, 0, 1]);
    key[16..].try_into().expect("16 octets")
}

#[test]
fn digest_equals_published_vectors() {
    assert_eq!(hex::encode(sha256(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    // RFC 4231 4.2 has a key of 20 octets, which zeros extend.
    let mut key = [0; 32];
    key[..20].fill(0x0b);
    let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
    assert_eq!(hex::encode(hmac(&key, b"Hi There")), expected);
}
