//! Search for the highest load that a core sustains.

/// Factor of a load change in the search until the limit lies between two loads.
const STRIDE: f64 = 1.6;
/// Maximum number of changes by [`STRIDE`] in each direction.
const STRIDES: u32 = 8;

/// Searches for the highest rate for which `keeps_up` returns true. It begins at `guess` and halves
/// the interval `steps` times. Returns zero if no tried rate is sustained.
pub(crate) fn search<E>(guess: f64, steps: u32, mut keeps_up: impl FnMut(f64) -> Result<bool, E>) -> Result<f64, E> {
    let (mut good, mut bad) = (None, None);
    let mut rate = guess;
    for _ in 0..STRIDES {
        if keeps_up(rate)? {
            good = Some(rate);
            rate *= STRIDE;
        } else {
            bad = Some(rate);
            rate /= STRIDE;
        }
        if good.is_some() && bad.is_some() {
            break;
        }
    }
    let (Some(mut good), Some(mut bad)) = (good, bad) else { return Ok(good.unwrap_or(0.0)) };
    for _ in 0..steps {
        let middle = f64::midpoint(good, bad);
        *(if keeps_up(middle)? { &mut good } else { &mut bad }) = middle;
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        #[test]
        fn saturation_is_found_from_both_sides(limit in 300.0..3000.0, guess in 900.0..1100.0) {
            let mut tried = 0;
            let found = search(guess, 5, |rate| {
                tried += 1;
                Ok::<_, Infallible>(rate <= limit)
            });
            let Ok(found) = found;
            prop_assert!(found <= limit && found >= limit * 0.97, "{found} of {limit}");
            prop_assert!(tried <= STRIDES + 5);
        }
    }

    #[test]
    fn saturation_without_success_is_zero() {
        assert_eq!(search(100.0, 5, |_| Ok::<_, Infallible>(false)), Ok(0.0));
        assert_eq!(search(100.0, 5, |_| Err("stopped")), Err("stopped"));
    }
}
