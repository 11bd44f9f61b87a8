//! Repeatable strings that an expression may match.

/// Random numbers (xorshift64*), repeatable so that a failure replays.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Writer of strings that an expression is likely to match. Its errors cost matches, not correctness.
struct Writer<'a> {
    pattern: &'a [u8],
    at: usize,
}

impl Writer<'_> {
    fn alternation(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        // Each branch is written, a random one is kept.
        let start = out.len();
        let mut branches = 1;
        self.branch(numbers, out);
        while self.pattern.get(self.at) == Some(&b'|') {
            self.at += 1;
            branches += 1;
            let mut other = Vec::new();
            self.branch(numbers, &mut other);
            if numbers.below(branches) == 0 {
                out.truncate(start);
                out.extend(other);
            }
        }
    }

    fn branch(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        while let Some(&byte) = self.pattern.get(self.at) {
            if byte == b'|' || byte == b')' {
                return;
            }
            let from = self.at;
            let mut atom = Vec::new();
            self.atom(numbers, &mut atom);
            let to = self.at;
            let (least, most) = self.interval();
            let behind = self.at;
            if most == 0 || (least == 0 && numbers.below(3) == 0) {
                continue;
            }
            out.extend(&atom);
            let more = least.saturating_sub(1) + numbers.below(most.max(least) - least.min(most) + 1);
            for _ in 0..more {
                self.at = from;
                self.atom(numbers, out);
            }
            debug_assert!(more == 0 || self.at == to);
            self.at = behind;
        }
    }

    fn interval(&mut self) -> (usize, usize) {
        let mut bounds = (1, 1);
        loop {
            bounds = match self.pattern.get(self.at) {
                Some(b'*') => (0, 6),
                Some(b'+') => (1, 6),
                Some(b'?') => (0, 1),
                Some(b'{') => {
                    let rest = &self.pattern[self.at + 1..];
                    let inside = rest.split(|&byte| byte == b'}').next().unwrap_or_default();
                    self.at += inside.len() + 1;
                    let mut numbers = inside
                        .split(|&byte| byte == b',')
                        .map(|digits| std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok()));
                    let least = numbers.next().flatten().unwrap_or(0);
                    (least, numbers.next().map_or(least, |most| most.unwrap_or(least + 3)))
                }
                _ => return bounds,
            };
            self.at += 1;
        }
    }

    fn atom(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let byte = self.pattern[self.at];
        self.at += 1;
        match byte {
            b'(' => {
                self.alternation(numbers, out);
                self.at += 1;
            }
            b'.' => out.push(*numbers.pick(b"a5 <>\"@:;=-Z\r\n.,\xe9")),
            b'^' | b'$' => {}
            b'\\' => {
                let escaped = self.pattern.get(self.at).copied().unwrap_or(b'\\');
                self.at += 1;
                match escaped {
                    b's' | b'W' => out.push(*numbers.pick(b" \t\n ")),
                    b'S' | b'w' => out.push(*numbers.pick(b"aZ9_")),
                    b'b' | b'B' | b'<' | b'>' => {}
                    other => out.push(other),
                }
            }
            b'[' => {
                let first = usize::from(self.pattern.get(self.at) == Some(&b'^')) + self.at;
                let mut end = first + 1;
                while end < self.pattern.len() && self.pattern[end] != b']' {
                    // A class in it has a ] of its own.
                    end += if self.pattern[end..].starts_with(b"[:") {
                        self.pattern[end..].windows(2).position(|pair| pair == b":]").unwrap_or(0) + 2
                    } else {
                        1
                    };
                }
                let inside = &self.pattern[first..end.min(self.pattern.len())];
                let any = b"a0Z 9-._<>@;,=:\"\r\n";
                match (first == self.at, inside) {
                    (true, [from, b'-', to, ..]) if from <= to => {
                        out.push(from + numbers.below(usize::from(to - from) + 1) as u8);
                    }
                    (true, inside) if !inside.contains(&b'[') && numbers.below(4) > 0 => {
                        out.push(*numbers.pick(inside))
                    }
                    _ => out.push(*numbers.pick(any)),
                }
                self.at = end + 1;
            }
            other => out.push(other),
        }
    }
}

/// Writes a text of some 5 to 150 bytes that the expression may match.
pub(crate) fn generate(pattern: &[u8], numbers: &mut Numbers, text: &mut Vec<u8>) {
    const AROUND: [&[u8]; 8] = [
        b"",
        b" ",
        b"<sip:alice@a.test>;tag=1",
        b"x",
        b"\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\n",
        b"\"a\" ",
        b">",
        b"aab",
    ];
    text.clear();
    text.extend(*numbers.pick(&AROUND));
    for _ in 0..1 + numbers.below(8) / 7 {
        let mut writer = Writer { pattern, at: 0 };
        while writer.at < pattern.len() {
            writer.alternation(numbers, text);
            // An unmatched ) is a literal character.
            if writer.at < pattern.len() {
                text.push(b')');
                writer.at += 1;
            }
        }
        text.extend(*numbers.pick(&AROUND));
    }
    for _ in 0..[0, 0, 0, 1, 2, 5][numbers.below(6)] {
        if text.is_empty() {
            break;
        }
        let at = numbers.below(text.len());
        match numbers.below(4) {
            0 => drop(text.remove(at)),
            1 => text[at] = *numbers.pick(b"aZ0 ;:=<>\"\r\n.-@\x80"),
            2 => text.insert(at, *numbers.pick(b"aZ0 ;:=<>\"\r\n.-@\xff")),
            _ => {
                let byte = text[at];
                text.insert(at, byte);
            }
        }
    }
    text.retain(|&byte| byte != 0);
}
