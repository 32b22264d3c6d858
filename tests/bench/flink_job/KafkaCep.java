// The rule card_testing of tests/bench/kafka.py with Flink's own connector and CEP library: JSON from a topic,
// matches as JSON into another. It runs the job twice and prints what the second run took: the first is a warm-up.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

public class KafkaCep {
  public static class Payment {
    public String txId;
    public String cardId;
    public long ts;
    public double amount;
    public String merchant;
    public String country;
    public boolean approved;
    public int attempt;
  }

  public static class Json extends AbstractDeserializationSchema<Payment> {
    private transient ObjectMapper mapper;

    @Override
    public Payment deserialize(byte[] message) throws IOException {
      if (mapper == null) {
        mapper = new ObjectMapper();
      }
      JsonNode node = mapper.readTree(message);
      Payment payment = new Payment();
      payment.txId = node.get("tx_id").asText();
      payment.cardId = node.get("card_id").asText();
      payment.ts = Instant.parse(node.get("ts").asText()).toEpochMilli();
      payment.amount = node.get("amount").asDouble();
      payment.merchant = node.get("merchant").asText();
      payment.country = node.get("country").asText();
      payment.approved = node.get("approved").asBoolean();
      payment.attempt = node.get("attempt").asInt();
      return payment;
    }
  }

  public static class Alert extends PatternProcessFunction<Payment, String> {
    static final AtomicLong MATCHES = new AtomicLong(); // all tasks are in this process

    @Override
    public void processMatch(Map<String, List<Payment>> match, Context context, Collector<String> out) {
      List<Payment> probes = match.get("probe");
      Payment cashout = match.get("cashout").get(0);
      double probed = 0;
      for (Payment probe : probes) {
        probed += probe.amount;
      }
      MATCHES.incrementAndGet();
      out.collect(
          "{\"rule\": \"card_testing\", \"card_id\": \"" + cashout.cardId + "\", \"probes\": " + probes.size()
              + ", \"probed\": " + probed + ", \"loss\": " + cashout.amount + "}");
    }
  }

  static long run(String brokers, String in, String out, int parallelism) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("restart-strategy.type", "none"); // an error ends the job and is shown
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    env.getConfig().enableObjectReuse();
    env.enableCheckpointing(1000);
    KafkaSource<Payment> source =
        KafkaSource.<Payment>builder()
            .setBootstrapServers(brokers)
            .setTopics(in)
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new Json())
            .build();
    DataStream<Payment> payments =
        env.fromSource(
            source,
            WatermarkStrategy.<Payment>forBoundedOutOfOrderness(Duration.ofSeconds(10))
                .withTimestampAssigner((payment, before) -> payment.ts),
            "payments");
    Pattern<Payment, ?> pattern =
        Pattern.<Payment>begin("probe", AfterMatchSkipStrategy.skipPastLastEvent())
            .where(SimpleCondition.of(payment -> payment.amount < 5 && payment.approved))
            .timesOrMore(3)
            .greedy()
            .followedBy("cashout")
            .where(
                new IterativeCondition<Payment>() {
                  @Override
                  public boolean filter(Payment payment, Context<Payment> context) throws Exception {
                    if (payment.amount <= 500) {
                      return false;
                    }
                    double sum = 0;
                    int n = 0;
                    for (Payment probe : context.getEventsForPattern("probe")) {
                      sum += probe.amount;
                      n++;
                    }
                    return payment.amount > 20 * sum / n;
                  }
                })
            .within(Duration.ofMinutes(10));
    CEP.pattern(payments.keyBy(payment -> payment.cardId), pattern)
        .process(new Alert())
        .sinkTo(
            KafkaSink.<String>builder()
                .setBootstrapServers(brokers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-" + out)
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(
                    KafkaRecordSerializationSchema.builder()
                        .setTopic(out)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build());
    Alert.MATCHES.set(0);
    env.execute();
    return Alert.MATCHES.get();
  }

  public static void main(String[] args) throws Exception {
    OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    run(args[0], args[1], args[2] + "-warm", 2);
    long cpu = system.getProcessCpuTime();
    long begun = System.nanoTime();
    long matches = run(args[0], args[1], args[2] + "-measured", 2);
    System.out.println(
        "{\"matches\": " + matches + ", \"seconds\": " + (System.nanoTime() - begun) / 1e9 + ", \"cpu\": "
            + (system.getProcessCpuTime() - cpu) / 1e9 + "}");
    System.exit(0);
  }
}
