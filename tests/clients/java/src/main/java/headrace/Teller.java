package headrace;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;

/**
 * Runs stories and prints one line for each: {@code STORY slug PASS} or {@code STORY slug FAIL why}.
 * The slugs are those of tests/clients/stories.py. Waiting is bounded here, in {@link #until}.
 */
final class Teller {
    interface Story {
        void tell() throws Exception;
    }

    private record Named(String slug, Story story) {}

    private static final long DEADLINE_MS = 30_000;
    private final List<Named> stories = new ArrayList<>();

    void add(String slug, Story story) {
        stories.add(new Named(slug, story));
    }

    /** Tells the stories whose slug contains {@code filter}; returns how many failed. */
    int tellAll(String filter) {
        int failed = 0;
        for (Named named : stories) {
            if (!named.slug.contains(filter)) continue;
            try {
                named.story.tell();
                System.out.println("STORY " + named.slug + " PASS");
            } catch (Throwable problem) {
                failed++;
                System.out.println("STORY " + named.slug + " FAIL " + String.valueOf(problem).replace('\n', ' '));
                problem.printStackTrace();
            }
        }
        return failed;
    }

    static void until(String what, BooleanSupplier condition) {
        long giveUpAt = System.currentTimeMillis() + DEADLINE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > giveUpAt) throw new AssertionError(what + ": not so after " + DEADLINE_MS + " ms");
        }
    }

    static void same(Object wanted, Object seen) {
        if (!java.util.Objects.equals(wanted, seen)) throw new AssertionError("wanted " + wanted + ", saw " + seen);
    }

    static void holds(String what, boolean condition) {
        if (!condition) throw new AssertionError("not so: " + what);
    }

    /** The action must fail with this error of the broker. */
    static void refused(Class<? extends Exception> error, Callable<?> action) throws Exception {
        try {
            action.call();
        } catch (ExecutionException failure) {
            if (error.isInstance(failure.getCause())) return;
            throw failure;
        } catch (Exception failure) {
            if (error.isInstance(failure)) return;
            throw failure;
        }
        throw new AssertionError("wanted " + error.getSimpleName() + ", but it went through");
    }
}
