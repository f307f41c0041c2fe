// Shows the harness one pair that is the same and one that is not.
extern "C" {
void callee(int, int);
extern int counters[4];

void hand_same(int n) {
  for (int i = 0; i < n; ++i) callee(i, counters[i & 3]);
}
void stretto_same(int n) {
  auto step = [](int i) { callee(i, counters[i & 3]); };
  for (int i = 0; i < n; ++i) step(i);
}

void hand_other_callee_argument() { callee(1, 2); }
void stretto_other_callee_argument() { callee(1, 3); }

void other_callee(int, int);
void hand_other_callee() { callee(1, 2); }
void stretto_other_callee() { other_callee(1, 2); }
}
