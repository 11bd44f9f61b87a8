//! Random numbers that SIPp draws for `chance`, for lines of RANDOM files and for its nonces. They are those of the C
//! library's `rand` from its first seed, so that a run can be compared with a run of SIPp.
//!
//! The rule is that of glibc: additive feedback over 31 words; each is the sum of the words 31 and 3 places before it.

/// Generator state: a ring of 31 words.
#[derive(Clone, Debug)]
pub(super) struct Rand {
    words: [u32; WORDS],
    at: usize,
}

const WORDS: usize = 31;

/// Largest number drawn (`RAND_MAX` of glibc).
pub(super) const MOST: u32 = i32::MAX as u32;

impl Rand {
    /// Creates a generator. Seed 0 is treated as 1, which is also the seed of a C program that sets none.
    pub(super) fn new(seed: u32) -> Self {
        let mut words = [0; WORDS];
        let mut word = i64::from(seed.max(1) as i32);
        for place in &mut words {
            *place = word as u32;
            // Park and Miller's generator, modulo 2^31 - 1.
            word = (word * 16_807) % i64::from(i32::MAX);
            if word < 0 {
                word += i64::from(i32::MAX);
            }
        }
        // The sums begin at the fourth word.
        let mut rand = Self { words, at: 3 };
        for _ in 0..10 * WORDS {
            rand.draw();
        }
        rand
    }

    /// Draws a number from 0 to [`MOST`].
    pub(super) fn draw(&mut self) -> u32 {
        let word = self.words[self.at].wrapping_add(self.words[(self.at + WORDS - 3) % WORDS]);
        self.words[self.at] = word;
        self.at = (self.at + 1) % WORDS;
        word >> 1
    }

    /// Draws whether an event of this probability (0 to 1) happens. A certain event draws no number.
    pub(super) fn happens(&mut self, chance: f64) -> bool {
        let bound = ((1.0 - chance) * f64::from(MOST)) as i32;
        bound <= 0 || self.draw() > bound as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the output of a C program that calls `rand` without `srand`, and after `srand(42)`.
    #[test]
    fn numbers_are_those_of_the_c_library() {
        let mut rand = Rand::new(1);
        let first: Vec<u32> = (0..5).map(|_| rand.draw()).collect();
        assert_eq!(first, [1_804_289_383, 846_930_886, 1_681_692_777, 1_714_636_915, 1_957_747_793]);
        let mut other = Rand::new(42);
        assert_eq!([other.draw(), other.draw(), other.draw()], [71_876_166, 708_592_740, 1_483_128_881]);
        assert!((0..1_000).all(|_| rand.draw() <= MOST));
    }

    #[test]
    fn sure_things_are_not_drawn() {
        let mut rand = Rand::new(1);
        assert!((0..100).all(|_| rand.happens(1.0)) && !(0..100).any(|_| rand.clone().happens(0.0)));
        assert_eq!(rand.draw(), 1_804_289_383);
        let often = (0..10_000).filter(|_| rand.happens(0.25)).count();
        assert!((2_300..2_700).contains(&often), "{often}");
    }
}
