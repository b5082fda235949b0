//! Exact binomial quantiles: how many of `n` packets may be lost if each is lost with probability
//! `p`.

/// Returns the central interval, both ends included, that covers at least `confidence` of the
/// distribution.
///
/// `p` is 0 to 1, `confidence` between 0 and 1. The cost is proportional to `n`.
pub fn interval(n: u64, p: f64, confidence: f64) -> (u64, u64) {
    let tail = (1.0 - confidence) / 2.0;
    (quantile(n, p, tail), quantile(n, p, 1.0 - tail))
}

/// Returns the smallest `k` such that at most `k` losses have at least the probability `share`.
pub fn quantile(n: u64, p: f64, share: f64) -> u64 {
    if p <= 0.0 {
        return 0;
    }
    if p >= 1.0 {
        return n;
    }
    // Computed in logarithms: the probability of no loss is far below the smallest f64 for n =
    // 20,000 and p = 15 %.
    let log_odds = p.ln() - (-p).ln_1p();
    let mut log_chance = n as f64 * (-p).ln_1p();
    let mut cumulative = log_chance.exp();
    let mut k = 0;
    while cumulative < share && k < n {
        log_chance += ((n - k) as f64 / (k + 1) as f64).ln() + log_odds;
        cumulative += log_chance.exp();
        k += 1;
    }
    k
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_cases_match_exact_rational_sums() {
        assert_eq!(interval(20_000, 0.15, 0.99), (2871, 3131));
        assert_eq!(interval(5_000, 0.01, 0.99), (33, 69));
        assert_eq!(interval(1_000, 0.001, 0.99), (0, 4));
        assert_eq!(interval(10_000, 0.5, 0.99), (4871, 5129));
    }

    #[test]
    fn interval_of_a_certain_outcome_has_no_width() {
        assert_eq!(interval(1000, 0.0, 0.99), (0, 0));
        assert_eq!(interval(1000, 1.0, 0.99), (1000, 1000));
        assert_eq!(interval(0, 0.3, 0.99), (0, 0));
    }

    #[test]
    fn small_cases_match_counting() {
        // 20 coins: P(X <= 3) = 1351/2^20 = 0.00129, P(X <= 4) = 6196/2^20 = 0.00591.
        assert_eq!(interval(20, 0.5, 0.99), (4, 16));
        // One die, six throws: P(0) = 0.3349, P(<= 1) = 0.7368, P(<= 2) = 0.9377.
        assert_eq!(quantile(6, 1.0 / 6.0, 0.5), 1);
        assert_eq!(quantile(6, 1.0 / 6.0, 0.74), 2);
    }
}
