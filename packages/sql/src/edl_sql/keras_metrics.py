"""Names of the metrics of Keras: this package does without Keras; a test compares them."""

_NAMES = """
    AUC Accuracy BCE BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy
    CategoricalCrossentropy CategoricalHinge ConcordanceCorrelation CosineSimilarity F1Score
    FBetaScore FalseNegatives FalsePositives Hinge IoU KLDivergence LogCoshError MAE MAPE MSE
    MSLE Mean MeanAbsoluteError MeanAbsolutePercentageError MeanIoU MeanMetricWrapper
    MeanSquaredError MeanSquaredLogarithmicError Metric OneHotIoU OneHotMeanIoU
    PearsonCorrelation Poisson Precision PrecisionAtRecall R2Score Recall RecallAtPrecision
    RootMeanSquaredError SensitivityAtSpecificity SparseCategoricalAccuracy
    SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy SpecificityAtSensitivity
    SquaredHinge Sum TopKCategoricalAccuracy TrueNegatives TruePositives accuracy auc bce
    binary_accuracy binary_crossentropy binary_io_u categorical_accuracy
    categorical_crossentropy categorical_hinge concordance_correlation cosine_similarity
    f1_score f_beta_score false_negatives false_positives hinge io_u kl_divergence
    log_cosh_error mae mape mean mean_absolute_error mean_absolute_percentage_error mean_io_u
    mean_metric_wrapper mean_squared_error mean_squared_logarithmic_error metric mse msle
    one_hot_io_u one_hot_mean_io_u pearson_correlation poisson precision precision_at_recall
    r2_score recall recall_at_precision root_mean_squared_error sensitivity_at_specificity
    sparse_categorical_accuracy sparse_categorical_crossentropy
    sparse_top_k_categorical_accuracy specificity_at_sensitivity squared_hinge sum
    top_k_categorical_accuracy true_negatives true_positives
"""
NAMES = frozenset(_NAMES.split())
"""Those that ``keras.metrics.get`` knows."""

BY_SHAPE = frozenset(("accuracy", "acc", "crossentropy", "ce"))
"""In any case of letters: Keras chooses the metric by the shapes of labels and outputs."""


def is_known(name: str) -> bool:
    """Return whether Keras has a metric of this name."""
    return name in NAMES or name.lower() in BY_SHAPE
