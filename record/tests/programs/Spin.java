/** Runs compiled code for some seconds. */
public class Spin {
    static double inner(double x) {
        double sum = 0;
        for (int i = 1; i < 1000; i++) {
            sum += Math.sqrt(x + i) / i;
        }
        return sum;
    }

    static double middle(double x) {
        return inner(x) + inner(x + 1);
    }

    public static void main(String[] arguments) {
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        double sum = 0;
        while (System.nanoTime() < end) {
            sum += middle(sum % 10);
        }
        System.out.println("spun " + (sum > 0));
    }
}
