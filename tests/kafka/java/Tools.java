import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command line tools, one after the other in one JVM: a call a line, words between tabs; its output follows. */
public class Tools {
    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((code, message) -> { throw new IllegalStateException("exit " + code); });
        Exit.setHaltProcedure((code, message) -> { throw new IllegalStateException("exit " + code); });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(printed, true);
            System.setOut(to);
            System.setErr(to);
            try {
                Method main = Class.forName(words[0]).getDeclaredMethod("main", String[].class);
                main.invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException error) {
                to.println(error.getCause().getMessage());
            }
            to.flush();
            byte[] bytes = printed.toByteArray();
            out.println(bytes.length);
            out.write(bytes);
            out.flush();
        }
    }
}
